# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All machines of a lab: bring them to what is wanted, remove them. Private."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine import disks as disk_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine import process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.machine import Machine
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.plan import Action, Known, plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.spec import (
    MachineError,
    Spec,
    group,
    plain,
    port,
    read,
)

_HOST_KEY = "ssh_host_ed25519_key"


class Lab:
    """The machines below a state directory."""

    def __init__(self, state_dir: str | Path) -> None:
        self.state_dir = Path(state_dir).resolve()
        self._root = self.state_dir / "machines"

    def names(self) -> list[str]:
        """The machines that are there."""
        return sorted(path.name for path in self._root.iterdir()) if self._root.is_dir() else []

    def machine(self, name: str) -> Machine:
        """One of them."""
        return Machine(self.state_dir, name)

    def known(self) -> dict[str, Known]:
        """What is there, for the plan."""
        found = {}
        for name in self.names():
            try:
                spec: Spec | None = self.machine(name).spec
            except MachineError:
                spec = None
            found[name] = Known(spec, process.pid_of(self._root / name) is not None)
        return found

    def wanted(self, machines: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, Spec]:
        """Complete what is asked for: the network, and for each machine a port, the one it has if it has one."""
        known = self.known()
        taken = {machine.spec.port for machine in known.values() if machine.spec}
        found = {}
        for data in machines:
            now = known.get(data["name"], Known(None, False)).spec
            number = now.port if now else port(str(self._root / data["name"]), taken, _free)
            taken.add(number)
            found[data["name"]] = read({"network": group(str(self.state_dir)), **data, "port": number})
        return found

    def apply(self, wanted: t.Mapping[str, Spec], check: bool = False) -> list[Action]:
        """Bring the machines to what is wanted; return what was, or with `check` would be, done."""
        todo = plan(self.known(), wanted)
        for action in [] if check else todo:
            if action.kind == "remove":
                self.remove(action.name)
            elif action.kind == "make":
                self._make(wanted[action.name])
            else:
                self.machine(action.name).start()
        return todo

    def remove(self, name: str) -> None:
        """Take a machine's power away and remove its files."""
        with contextlib.suppress(MachineError):  # a description that cannot be read
            self.machine(name).kill()
        process.kill(self._root / name)
        shutil.rmtree(self._root / name)

    def tell(self) -> list[str]:
        """Tell running machines what they were told at boot and what is different by now; return which had to be."""
        return [name for name in self.names() if self.machine(name).pid and self._tell(self.machine(name))]

    def _tell(self, machine: Machine) -> bool:
        changed = False
        for path in sorted((self.state_dir / "node").iterdir()):
            place = f"/etc/lab/{path.name}"
            told = machine.system.run("cat", place)
            if told.out == path.read_text():
                continue
            done = machine.system.run(f"cat > {place}", data=path.read_text())
            if done.problem:
                raise MachineError(f"Cannot write {place} on {machine.name}: {done.problem}")
            changed = True
        return changed

    def host_key(self, name: str) -> str:
        """The public SSH key of a machine, empty before it is made."""
        path = self._root / name / "seed" / f"{_HOST_KEY}.pub"
        return " ".join(path.read_text().split()[:2]) if path.exists() else ""

    def _make(self, spec: Spec) -> None:
        """Complete or not at all: the description comes last, without it the machine is made anew."""
        directory = self._root / spec.name
        seed = directory / "seed"
        seed.mkdir(parents=True, exist_ok=True)
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", spec.name, "-f", str(seed / _HOST_KEY)]
        done = run(key, timeout=60)
        if done.problem:
            raise MachineError(f"Cannot make the SSH host key of {spec.name}. ssh-keygen: {done.problem}")
        disk_files.make_root(directory, spec.image)
        disk_files.make(directory, spec.disks)
        (directory / "machine.json").write_text(json.dumps(plain(spec), indent=1) + "\n")


def _free(number: int) -> bool:
    with socket.socket() as candidate:
        # As QEMU does: what waits for the last packets of an old connection does not count.
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", number))
        except OSError:
            return False
        return True
