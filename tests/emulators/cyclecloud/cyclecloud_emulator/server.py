# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server: TLS, Basic authentication, faults on demand, the data drop; started by `python3 -m`."""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.server
import json
import os
import re
import signal
import socket
import ssl
import sys
import threading
import time
import traceback
import typing as t
import urllib.parse
import uuid
from pathlib import Path

from . import admin, commands, instances, life, projects, records, rest
from .store import Json, Store, UserError
from .tls import NAME, certificate, context, properties


class Lost(Exception):
    """The connection shall break off."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    context: ssl.SSLContext | None = None

    def __init__(self, address: tuple[str, int], home: Home, redirect: int = 0) -> None:
        super().__init__(address, Handler)
        self.home, self.redirect = home, redirect

    def get_request(self) -> tuple[t.Any, t.Any]:
        connection, address = super().get_request()
        connection.settimeout(60)
        if self.context:
            connection = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def handle_error(self, request: t.Any, client_address: t.Any) -> None:
        """A client that goes away, or that does not trust us, is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Home:
    """One installation: a folder with config/, data/ and what serves it."""

    def __init__(self, folder: Path, version: str, speed: float | None = None) -> None:
        self.folder, self.version = folder, version
        for name in ("config/data", "data", "logs"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.store = Store(folder / "data/state.json", speed)
        self.secret = local_secret(folder)
        self.ready = threading.Event()

    def watch(self) -> None:
        """Take in dropped files as they come, and let time pass for nodes that nobody asks about."""
        while True:
            with self.store.lock:
                life.tick(self.store)
                if records.drop(self.store, self.folder / "config/data") or self.store.dirty:
                    self.store.save()
            self.ready.set()
            time.sleep(0.3)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version = NAME

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def do_HEAD(self) -> None:
        self._serve(b"")

    def do_PUT(self) -> None:
        self.do_POST()

    def do_DELETE(self) -> None:
        self.do_POST()

    def log_message(self, *dummy: t.Any) -> None:
        pass

    def _serve(self, body: bytes) -> None:
        if self.server.redirect:
            host = (self.headers.get("Host") or "localhost").partition(":")[0]
            self._send(302, None, f"https://{host}:{self.server.redirect}{self.path}")
            return
        store = self.server.home.store
        url = urllib.parse.urlsplit(self.path)
        path = urllib.parse.unquote(url.path)
        label = self._label(path, body)
        try:
            fault = self._fault(label)
            if fault in ("reset", "reset_before"):
                raise Lost
            answer, why = self._tried(path, dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True)), body)
            if fault == "reset_after":
                raise Lost
            if isinstance(fault, dict):
                answer = rest.Answer(int(fault["status_after"]))
        except Lost:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            self._note(label, 0, "connection reset")
            return
        except rest.Refused as exc:
            answer, why = rest.Answer(exc.status), str(exc)
        self._note(label, answer.status, why)
        with store.lock:
            if self.command != "GET":
                store.save()
        self._send(answer.status, answer.body, answer.location)

    def _tried(self, path: str, query: dict[str, str], body: bytes) -> tuple[rest.Answer, str]:
        """Return the answer, and what the log says of it."""
        internal = path.startswith("/_emulator/")
        try:
            return self._answer(path, query, body), ""
        except rest.Refused as exc:
            return rest.Answer(exc.status), str(exc)
        except UserError as exc:
            return rest.Answer(409, {"error": str(exc)} if internal else None), str(exc)
        except Exception:  # a fault of the emulator, which nobody could tell from a lost connection
            said = traceback.format_exc()
            print(said, file=sys.stderr, flush=True)
            return rest.Answer(500, {"error": said[-1500:]} if internal else None), said[-200:]

    def _note(self, label: str, status: int, why: str) -> None:
        if not label:
            return
        store = self.server.home.store
        with store.lock:
            one = {"method": self.command, "path": label, "status": status, "why": why}
            store.state["log"] = [*store.state["log"], one][-2000:]

    def _send(self, status: int, body: t.Any, location: str = "") -> None:
        raw = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", f'Basic realm="{NAME}"')
        if location:
            self.send_header("Location", location)
        if raw:
            self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def _label(self, path: str, body: bytes) -> str:
        """What faults and the log call a request: its path, or /cli/<command> for one of the command line."""
        if path == "/_emulator/cli":
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return f"/cli/{json.loads(body)['command']}"
        return "" if path.startswith("/_emulator/") else self.path

    def _fault(self, label: str) -> t.Any:
        """What shall go wrong with this request."""
        store = self.server.home.store
        if not label:
            return None
        with store.lock:
            for one in store.state["faults"]:
                match = one["match"]
                if match.get("method", self.command) != self.command or not re.search(match.get("path", ""), label):
                    continue
                one["seen"] = one.get("seen", 0) + 1
                nth = match.get("nth", 1)
                if one["seen"] != nth and nth != "every":
                    continue
                return self._do(one["do"])
        return None

    @staticmethod
    def _do(do: t.Any) -> t.Any:
        if isinstance(do, dict) and "status" in do:
            raise rest.Refused(int(do["status"]), "fault")
        if isinstance(do, dict) and "hang" in do:
            time.sleep(float(do["hang"]))
            return None
        return do

    def _answer(self, path: str, query: dict[str, str], body: bytes) -> rest.Answer:
        home = self.server.home
        if path == "/health_monitor":
            return rest.Answer(200, {"status": "ok"})
        if path == "/ui/metadata":
            return rest.Answer(200, {"entra": {"enabled": False}, "version": home.version})
        with home.store.lock:
            life.tick(home.store)
            if path.startswith("/_emulator/"):
                return self._internal(path, query, body)
            user = self._user()
            if not user.get("Superuser"):
                raise rest.Refused(403, f"{user['Name']} has no rights")
            kind = self.headers.get("Content-Type") or ""
            accept = self.headers.get("Accept") or "*/*"
            if not re.search(r"\*/\*|application/(json|\*)", accept):
                raise rest.Refused(406, f"Accept: {accept}")
            return rest.handle(home.store, self.command, path, query, body, kind)

    def _user(self) -> Json:
        scheme, dummy, value = (self.headers.get("Authorization") or "").partition(" ")
        found = None
        if scheme.lower() == "basic":
            with contextlib.suppress(ValueError):
                name, dummy, password = base64.b64decode(value).decode().partition(":")
                store = self.server.home.store
                found = store.user(name, password) or instances.user(store, name, password)
        if found is None:
            raise rest.Refused(401, "bad credentials")
        return found

    def _internal(self, path: str, query: dict[str, str], body: bytes) -> rest.Answer:
        home = self.server.home
        if path == "/_emulator/cli":
            self._user()
            return rest.Answer(200, commands.run(home, json.loads(body)))
        if path.startswith("/_emulator/locker/"):
            self._user()
            return rest.Answer(200, projects.store_blob(home, path[len("/_emulator/locker/") :], body))
        if path == "/_emulator/admin":
            if self.headers.get("X-Secret") != home.secret:
                raise rest.Refused(403, "not root on this machine")
            return rest.Answer(200, admin.administer(home, json.loads(body)))
        if path == "/_emulator/node":
            return rest.Answer(200, instances.asked(home.store, self.headers.get("X-Node") or "", json.loads(body)))
        if self.headers.get("X-Emulator") != "1":
            raise rest.Refused(404, "no X-Emulator header")
        return rest.Answer(200, admin.control(home, path[len("/_emulator/") :], json.loads(body or b"{}")))


def local_secret(folder: Path) -> str:
    """What proves to be root on this machine."""
    path = folder / "data/local.secret"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(uuid.uuid4().hex)
    return path.read_text()


def listen(home: Home, address: str) -> list[Server]:
    """Open the ports that config/cycle_server.properties names."""
    given = properties(home.folder / "config/cycle_server.properties")
    https = given.get("webServerEnableHttps", "false") == "true"
    secure = int(given.get("webServerSslPort", 8443))
    found = []
    keys = home.folder / "config/keystore"
    keys.mkdir(exist_ok=True)
    if not (keys / "server.pem").exists():
        certificate(keys, ["localhost", "127.0.0.1", socket.gethostname()])
    if given.get("webServerEnableHttp", "true") == "true":
        redirect = secure if https and given.get("webServerRedirectHttp", "true") == "true" else 0
        found.append(Server((address, int(given.get("webServerPort", 8080))), home, redirect))
    ports = ([secure] if https else []) + [int(given.get("webServerClusterPort", 9443))]
    for port in dict.fromkeys(ports):
        server = Server((address, port), home)
        server.context = context(keys)
        found.append(server)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--address", default="0.0.0.0")
    parser.add_argument("--version", default="8.9.3-3500")
    options = parser.parse_args()
    home = Home(options.home, options.version)
    servers = listen(home, options.address)

    def renew(*dummy: t.Any) -> None:
        for one in servers:
            if one.context:
                one.context = context(options.home / "config/keystore")

    def stop(*dummy: t.Any) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGHUP, renew)
    signal.signal(signal.SIGTERM, stop)
    home.store.save()
    for one in servers:
        threading.Thread(target=one.serve_forever, daemon=True).start()
    (options.home / "data/server.pid").write_text(str(os.getpid()))
    home.watch()


if __name__ == "__main__":
    main()
