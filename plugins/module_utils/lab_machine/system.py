# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reach the system in a machine: has it booted, run a command there. Private."""

from __future__ import annotations

import contextlib
import socket
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.spec import MachineError

_PAUSE = 0.2
# Prints the boot's identity and the state, once systemd has nothing more to start.
_BOOTED = "cat /proc/sys/kernel/random/boot_id; systemctl is-system-running --wait"
_STATES = ("running", "degraded")


class System(t.NamedTuple):
    """How to reach the system in a machine."""

    port: int
    state_dir: Path

    @property
    def control(self) -> Path:
        """The socket of the connection that commands share: under emulation a new one costs a second."""
        return self.state_dir / f"ssh-{self.port}"

    def argv(self, *command: str, shared: bool = True) -> list[str]:
        """The ssh command; without arguments that of a shell."""
        options = {
            "IdentitiesOnly": "yes",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": f"{self.state_dir}/known_hosts",
            "ConnectTimeout": "10",
            "LogLevel": "ERROR",
        }
        if shared:
            options.update(ControlMaster="auto", ControlPath=str(self.control), ControlPersist="120")
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        key = ["-i", f"{self.state_dir}/ssh_key"]
        return ["ssh", *key, *words, "-p", str(self.port), "root@127.0.0.1", *command]

    def run(self, *command: str, timeout: float = 60.0, data: str | None = None) -> Outcome:
        """Run a command as root."""
        return run(self.argv(*command), timeout, data)

    def hang_up(self) -> None:
        """End the shared connection: what is on its other side goes away."""
        if self.control.exists():
            run(["ssh", "-O", "exit", "-o", f"ControlPath={self.control}", "127.0.0.1"], 10)
            with contextlib.suppress(FileNotFoundError):
                self.control.unlink()

    def await_boot(self, seconds: float, alive: t.Callable[[], object], after: str = "") -> str:
        """Wait until the system has booted, into another boot than this one; return the boot's identity."""
        # The boot before may still answer on the connection that it knows.
        self.hang_up()
        end = time.monotonic() + seconds
        said = "SSH does not answer"
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise MachineError(f"not booted after {seconds:g} s: {said}")
            if not alive():
                raise MachineError(f"it went off while it should boot: {said}")
            if not self._listens():
                time.sleep(_PAUSE)
                continue
            done = run(self.argv(_BOOTED, shared=False), left)
            boot, *state = done.out.split() or [""]
            if state and state[0] in _STATES and boot != after:
                return boot
            said = f"systemd says {state[0]}" if state else done.problem
            time.sleep(_PAUSE)

    def boot_id(self) -> str:
        """The identity of the running boot."""
        done = self.run("cat", "/proc/sys/kernel/random/boot_id")
        if done.problem:
            raise MachineError(f"the system does not answer: {done.problem}")
        return done.out.strip()

    def _listens(self) -> bool:
        """QEMU takes every connection; what counts is that the system says something on it."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False
