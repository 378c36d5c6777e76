# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep what hosts answer to modules, or answer in their place: for ``benchmarks/control_host.py``.

The directory ``ANSWERS`` has the hosts by their addresses (``hosts.json``: name, and the name of the host whose answers
are given) and an answer in each line of a host's file. With ``ANSWERS_GIVEN`` nobody is asked.
"""

from __future__ import annotations

import json
import os
import re
import time
import typing as t
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.callback import CallbackBase
from ansible.plugins.connection import ssh

DOCUMENTATION = r"""
name: answers
type: aggregate
short_description: Keep what hosts answer to modules, or answer in their place
description:
  - Takes the place of what runs a command by SSH.
"""
Said = tuple[int, bytes, bytes]
Run = t.Callable[..., Said]
_MODULE = re.compile(rb"ansible_module='(?:\w+\.)*(\w+)'")
_COMMAND = "command"  # without a module: where a file of a task is to go


class Answers:
    """What is in the directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts: dict[str, tuple[str, str]] = json.loads((folder / "hosts.json").read_text())
        self.addresses = {name: address for address, (name, dummy) in self.hosts.items()}
        self.known: dict[str, dict[str, list[dict[str, t.Any]]]] = {}
        for path in folder.glob("*.jsonl"):
            of_host = self.known.setdefault(path.stem, {})
            for one in map(json.loads, path.read_text().splitlines()):
                of_host.setdefault(one["module"], []).append(one)

    def keep(self, address: str, module: str, seconds: float, said: Said) -> None:
        """Append an answer to its host's file; that of a step without a log has a secret in it."""
        one = {"module": module, "seconds": seconds, "rc": said[0], "out": said[1].decode(), "err": said[2].decode()}
        path = self.folder / f"{self.hosts[address][0]}.jsonl"
        with os.fdopen(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600), "w") as file:
            file.write(f"{json.dumps(one)}\n")

    def give(self, address: str, module: str) -> Said:
        """Return the next answer to that module, after the time that it took."""
        name, like = self.hosts[address]
        number = self._count(f"{name}.{module}")
        known = self.known[like].get(module, [])
        if number >= len(known):
            answered = f"{like} answered {len(known)} times"
            raise AnsibleConnectionFailure(f"{module} is run on {name} for the {number + 1}. time, and {answered}")
        one = known[number]
        time.sleep(one["seconds"])
        out = one["out"].replace(self.addresses[like], address)
        return one["rc"], re.sub(rf"\b{like}\b", name, out).encode(), one["err"].encode()

    def unasked(self) -> list[str]:
        """Return which hosts were asked less than those whose answers they give: they did not go the whole way."""
        missing = []
        for name, like in self.hosts.values():
            for module, known in self.known[like].items():
                count = self.folder / f"{name}.{module}.count"
                asked = count.stat().st_size if count.exists() else 0
                if asked < len(known):
                    missing.append(f"{name} {module} {asked} times in place of {len(known)}")
        return missing

    def _count(self, what: str) -> int:
        """Each task has a process of its own: a byte for each."""
        file = os.open(self.folder / f"{what}.count", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        os.write(file, b".")
        size = os.fstat(file).st_size
        os.close(file)
        return size - 1


def keeping(answers: Answers, run: Run) -> Run:
    """Return what runs a command as ever, and keeps the answer."""

    def kept(connection: t.Any, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> Said:
        began = time.monotonic()
        said = run(connection, cmd, in_data, sudoable)
        answers.keep(connection.get_option("host"), module_of(in_data), time.monotonic() - began, said)
        return said

    return kept


def giving(answers: Answers) -> Run:
    """Return what answers and runs nothing."""

    def given(connection: t.Any, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> Said:
        return answers.give(connection.get_option("host"), module_of(in_data))

    return given


def module_of(sent: bytes | None) -> str:
    """Return the name of the module that is sent."""
    named = _MODULE.search(sent or b"")
    return named.group(1).decode() if named else _COMMAND


def put(connection: object, in_path: str, out_path: str) -> None:
    """Take a file, and keep none."""


class CallbackModule(CallbackBase):
    """Takes its place before the first worker is forked."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "answers"

    def v2_playbook_on_start(self, playbook: t.Any) -> None:
        answers = Answers(Path(os.environ["ANSWERS"]))
        connection: t.Any = ssh.Connection
        if os.environ.get("ANSWERS_GIVEN"):
            connection.exec_command, connection.put_file = giving(answers), put
        else:
            connection.exec_command = keeping(answers, connection.exec_command)
