# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's little cloud over HTTPS: serve it, start it in the background, stop it.

python3 lab_cloud start|stop|serve DIRECTORY, which holds settings.json, token, certificate.pem and key.pem.
GET /instances; POST and DELETE /instances/NAME with {cluster, user_data}.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.server
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import typing as t
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from podman import CloudError, Instances

_HERE = Path(__file__).resolve().parent
_LARGEST = 1 << 20


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    directory: t.ClassVar[Path]
    token: t.ClassVar[str]

    def handle_one(self) -> None:
        try:
            status, answer = 200, self._act()
        except CloudError as exc:
            status, answer = exc.status, {"error": str(exc)}
        except (ValueError, KeyError, TypeError, OSError, subprocess.SubprocessError) as exc:
            status, answer = 500, {"error": f"{type(exc).__name__}: {exc}"}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = handle_one  # noqa: N815

    def _act(self) -> t.Any:
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            raise CloudError(401, "the token is not this cloud's")
        length = int(self.headers.get("Content-Length") or 0)
        if length > _LARGEST:
            raise CloudError(413, "the request is too long")
        body = json.loads(self.rfile.read(length) or b"{}")
        place, instances = self.path.strip("/").split("/"), Instances(self.directory)
        if place == ["instances"] and self.command == "GET":
            return instances.listed()
        if place[0] != "instances" or len(place) != 2 or self.command == "GET":
            raise CloudError(404, f"{self.command} {self.path} is not offered")
        if self.command == "POST":
            instances.create(place[1], body["cluster"], body["user_data"])
        else:
            instances.delete(place[1], body["cluster"])
        return {}


def serve(directory: Path) -> None:
    """Answer until somebody ends it."""
    settings = json.loads((directory / "settings.json").read_text())
    Handler.directory, Handler.token = directory, (directory / "token").read_text().strip()
    server = http.server.ThreadingHTTPServer((settings["host"], settings["port"]), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "certificate.pem", directory / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


def version(directory: Path) -> str:
    """What a running cloud was started with: code, address and keys."""
    found = hashlib.sha256()
    for path in [*sorted(_HERE.glob("*.py")), *(directory / name for name in ("token", "certificate.pem"))]:
        found.update(path.read_bytes())
    settings = json.loads((directory / "settings.json").read_text())
    found.update(f"{settings['host']}:{settings['port']}".encode())
    return found.hexdigest()


def running(directory: Path) -> tuple[int, str]:
    """The process of this directory's cloud and its version; 0 if there is none."""
    with contextlib.suppress(OSError, ValueError):
        pid, given = (directory / "pid").read_text().split()
        words = Path(f"/proc/{int(pid)}/cmdline").read_bytes().split(b"\0")
        if b"serve" in words and os.fsencode(directory) in words:
            return int(pid), given
    return 0, ""


def stop(directory: Path) -> bool:
    """End the cloud of this directory."""
    pid = running(directory)[0]
    if not pid:
        return False
    os.kill(pid, signal.SIGTERM)
    for dummy in range(100):
        if not running(directory)[0]:
            break
        time.sleep(0.05)
    (directory / "pid").unlink()
    return True


def start(directory: Path) -> bool:
    """Have the current cloud run; tell whether that was a change."""
    wanted = version(directory)
    if running(directory)[1] == wanted:
        return False
    stop(directory)
    argv = [sys.executable, "-B", str(_HERE), "serve", str(directory)]
    with (directory / "log").open("ab") as log:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    (directory / "pid").write_text(f"{child.pid} {wanted}\n")
    time.sleep(0.5)
    if child.poll() is not None:
        raise SystemExit(f"the lab's cloud ended at once; see {directory}/log")
    return True


def main(argv: t.Sequence[str]) -> int:
    verb, directory = argv[0], Path(argv[1]).resolve()
    if verb == "serve":
        serve(directory)
        return 0
    sys.stdout.write("changed\n" if (start if verb == "start" else stop)(directory) else "same\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
