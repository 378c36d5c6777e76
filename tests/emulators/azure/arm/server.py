# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network side: HTTPS, plain HTTP for the metadata service, and a proxy that leads Azure's names here."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import socket
import socketserver
import ssl
import threading
import typing as t
import urllib.parse
import uuid
from pathlib import Path

from connect_proxy import ConnectProxy

from .app import App
from .http import ArmError, DropError, Request, Response

# Names that the proxy leads to the emulator; the certificate has them too.
NAMES = ["management.azure.com", "login.microsoftonline.com", "*.blob.core.windows.net"]
PRIVATE = r"(localhost|127\..*|10\..*|192\.168\..*|172\.(1[6-9]|2\d|3[01])\..*)"


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection; kept open between requests, as the SDKs do."""

    protocol_version = "HTTP/1.1"
    timeout = 120
    disable_nagle_algorithm = True
    server: Server

    def setup(self) -> None:
        if self.server.tls:
            self.request.settimeout(20)
            self.request.do_handshake()
        super().setup()

    def _any(self) -> None:
        try:
            answer = self._answer()
        except DropError:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(answer)

    # Names that http.server asks for.
    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = _any  # noqa: N815

    def _answer(self) -> Response:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        split = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
        host = self.headers.get("Host", "localhost")
        path = re.sub("/{2,}", "/", urllib.parse.unquote(split.path))
        given = {key.lower(): value for key, value in query.items()}
        request = Request(self.command, path, given, t.cast(t.Any, self.headers), None, "", f"https://{host}", raw)
        if raw and self.server.tls:
            try:
                request = request._replace(body=self._body(raw, host, path))
            except ArmError as problem:
                return problem.response()
        return self.server.function(request)

    def _body(self, raw: bytes, host: str, path: str) -> t.Any:
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind == "application/x-www-form-urlencoded" or ".blob." in host or path.endswith("/content"):
            return None
        if kind != "application/json":
            message = f"The content media type '{kind}' is not supported. Only 'application/json' is supported."
            raise ArmError(415, "UnsupportedMediaType", message)
        try:
            return json.loads(raw)
        except ValueError as problem:
            message = f"The request content was invalid and could not be deserialized: '{problem}'."
            raise ArmError(400, "InvalidRequestContent", message) from problem

    def _send(self, answer: Response) -> None:
        body = b""
        if isinstance(answer.body, (bytes, str)):
            body = answer.body if isinstance(answer.body, bytes) else answer.body.encode()
        elif answer.body is not None:
            body = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        said = {"Content-Type": "application/json; charset=utf-8", "x-ms-request-id": str(uuid.uuid4())}
        said.update({"x-ms-ratelimit-remaining-subscription-reads": "11999", "Content-Length": str(len(body))})
        for key, value in {**said, **answer.headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *dummy: t.Any) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    """Serves ``function``; over TLS when a certificate is given."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], function: t.Callable[[Request], Response],
                 certificate: tuple[Path, Path] | None = None) -> None:  # fmt: skip
        super().__init__(address, Handler)
        self.function, self.tls = function, bool(certificate)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, *dummy: t.Any) -> None:
        """A client that goes away, or that does not trust us, is no news."""


class Proxy(ConnectProxy):
    """Azure's names lead to the emulator, private addresses to themselves, all else is refused."""

    def where(self, host: str, port: int) -> tuple[str, int] | None:
        if any(host == name or (name[0] == "*" and host.endswith(name[1:])) for name in NAMES) and port == 443:
            return ("127.0.0.1", t.cast("ProxyServer", self.server).upstream)
        return (host, port) if re.fullmatch(PRIVATE, host) else None


class ProxyServer(socketserver.ThreadingTCPServer):
    """The proxy, for clients that are told HTTPS_PROXY."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, upstream: int) -> None:
        super().__init__(("127.0.0.1", 0), Proxy)
        self.upstream = upstream


def start(app: App, address: tuple[str, int], certificate: tuple[Path, Path]) -> tuple[Server, ProxyServer, Server]:
    """Bind everything, then serve in threads."""
    main = Server(address, app.answer, certificate)
    proxy = ProxyServer(main.server_address[1])
    metadata = Server((address[0], 0), app.metadata)
    for server in (main, proxy, metadata):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    return main, proxy, metadata
