# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A proxy that knows CONNECT alone, for clients that are told HTTPS_PROXY; each emulator says where a name leads."""

from __future__ import annotations

import contextlib
import re
import socket
import socketserver
import threading

_LONGEST = 8192


class ConnectProxy(socketserver.BaseRequestHandler):
    """One tunnel."""

    def where(self, host: str, port: int) -> tuple[str, int] | None:
        """Return what a name leads to, or nothing where it is refused."""
        raise NotImplementedError

    def refuse(self) -> None:
        self.request.sendall(b"HTTP/1.1 403 Not emulated\r\nContent-Length: 0\r\n\r\n")

    def handle(self) -> None:
        head = b""
        while b"\r\n\r\n" not in head and len(head) < _LONGEST:
            chunk = self.request.recv(4096)
            if not chunk:
                return
            head += chunk
        match = re.match(rb"CONNECT ([^:\s]+):(\d+) ", head)
        place = self.where(match[1].decode(), int(match[2])) if match else None
        if not place:
            self.refuse()
            return
        with contextlib.suppress(OSError), socket.create_connection(place, 10) as up:
            up.settimeout(None)
            self.request.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=_pump, args=(up, self.request), daemon=True)
            back.start()
            _pump(self.request, up)
            back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(1 << 16):
            sink.sendall(chunk)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
