# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Talk to a running QEMU through its QMP socket. Private."""

from __future__ import annotations

import contextlib
import json
import socket
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.spec import MachineError

Json = t.Dict[str, t.Any]


class Qmp:
    """One conversation with the monitor of a machine."""

    def __init__(self, path: str, timeout: float = 60.0) -> None:
        self._path = path
        self._events: list[Json] = []
        self._rest = b""
        self._timeout = timeout
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(path)
        except OSError as exc:
            self._socket.close()
            raise MachineError(f"QEMU does not answer on {path}: {exc}") from exc
        with contextlib.ExitStack() as stack:
            stack.callback(self._socket.close)
            self._answer("the connection")  # the greeting
            self.ask("qmp_capabilities")
            stack.pop_all()

    def __enter__(self) -> Qmp:
        return self

    def __exit__(self, *dummy: object) -> None:
        self._socket.close()

    def ask(self, command: str, arguments: t.Mapping[str, t.Any] | None = None) -> t.Any:
        """Send a command, return what it returned; events that come in between are kept."""
        message = {"execute": command, **({"arguments": arguments} if arguments else {})}
        self._socket.settimeout(self._timeout)
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as exc:
            raise MachineError(f"QEMU did not take {command} on {self._path}: {exc}") from exc
        while True:
            answer = self._answer(command)
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise MachineError(f"QEMU refused {command} {dict(arguments or {})}: {answer['error'].get('desc')}")

    def await_event(self, name: str, seconds: float, **data: t.Any) -> bool:
        """Wait for an event that carries these values; tell whether it came."""
        end = time.monotonic() + seconds
        while True:
            for event in self._events:
                if event["event"] == name and data.items() <= event.get("data", {}).items():
                    return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._socket.settimeout(left)
            with contextlib.suppress(socket.timeout):
                self._message()

    def _answer(self, command: str) -> Json:
        try:
            return self._message()
        except socket.timeout as exc:
            raise MachineError(f"QEMU did not answer {command} on {self._path} within {self._timeout:g} s") from exc

    def _message(self) -> Json:
        while b"\n" not in self._rest:
            try:
                data = self._socket.recv(65536)
            except socket.timeout:
                raise
            except OSError as exc:
                raise MachineError(f"QEMU broke off on {self._path}: {exc}") from exc
            if not data:
                raise MachineError(f"QEMU ended the conversation on {self._path}")
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        message: Json = json.loads(line)
        if "event" in message:
            self._events.append(message)
        return message
