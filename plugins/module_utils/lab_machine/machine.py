# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One virtual machine of the lab: start, stop, break and mend it. Private; for the module, the program and tests."""

from __future__ import annotations

import contextlib
import json
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine import disks as disk_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine import process, seed
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.argv import block_node, device, qemu
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.plugs import Plugs
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.qmp import Qmp
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.spec import Disk, MachineError, Spec, read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.system import System

PATIENCE = 120.0


class Machine:
    """A machine that has a directory ``<state directory>/machines/<name>`` with its description in machine.json."""

    def __init__(self, state_dir: str | Path, name: str) -> None:
        self.name = name
        self.state_dir = Path(state_dir).resolve()
        self.directory = self.state_dir / "machines" / name
        try:
            self.spec: Spec = read(json.loads((self.directory / "machine.json").read_text()))
        except (OSError, json.JSONDecodeError) as exc:
            raise MachineError(f"there is no machine {name} in {self.state_dir}: {exc}") from exc
        self.plugs = Plugs(self.directory / "plugs.json", self.spec.disks)
        self.system = System(self.spec.port, self.state_dir)

    @property
    def pid(self) -> int | None:
        """Its process, none while it is off."""
        return process.pid_of(self.directory)

    def start(self) -> bool:
        """Switch it on; tell whether it was off."""
        if self.pid:
            return False
        disk_files.make(self.directory, self.plugs.present())
        base = Path(self.spec.image, "initrd").read_bytes()
        initrd = self.directory / "initrd"
        initrd.write_bytes(seed.append(base, self._told()))
        process.start(qemu(self.spec, str(self.directory), self.plugs.present(), str(initrd)), self.directory)
        return True

    def stop(self, seconds: float = PATIENCE) -> bool:
        """Press its power button and wait until it is off; tell whether it was on."""
        if not self.pid:
            return False
        self.system.hang_up()
        # A system that is just booting does not notice the button.
        for dummy in range(max(1, int(seconds // 10))):
            with contextlib.suppress(MachineError):
                self.ask("system_powerdown")
            if process.await_end(self.directory, min(10.0, seconds)):
                return True
        raise MachineError(f"{self.name} did not switch itself off within {seconds:g} s; `kill` takes its power away")

    def kill(self) -> bool:
        """Take its power away; tell whether it was on."""
        running = self.pid is not None
        self.system.hang_up()
        process.kill(self.directory)
        return running

    def reset(self) -> None:
        """Press its reset button."""
        self.system.hang_up()
        self.ask("system_reset")

    def wait(self, seconds: float = PATIENCE, after: str = "") -> str:
        """Wait until it has booted, into another boot than ``after``; return the boot's identity."""
        try:
            return self.system.await_boot(seconds, lambda: self.pid, after)
        except MachineError as exc:
            raise MachineError(f"{self.name}: {exc}; its console: {self.directory}/console.log") from exc

    def blank(self, names: t.Sequence[str] = (), replace: bool = False) -> None:
        """Empty disks (all by default), as after a redeployment; `replace`: by others with other serial numbers."""
        for disk in self.plugs.chosen(names):
            self._unused(disk)
            if replace:
                self.plugs.replace(disk)
            disk_files.blank(self.directory, [disk])

    def remove(self, names: t.Sequence[str]) -> bool:
        """Pull disks out, also while it runs; tell whether any was in."""
        pulled = [disk for disk in self.plugs.chosen(names) if disk in self.plugs.present()]
        if self.pid and pulled:
            with Qmp(str(self.directory / "qmp")) as qmp:
                for disk in pulled:
                    _pull(qmp, disk)
                    self.plugs.pull([disk])
        self.plugs.pull(pulled)
        return bool(pulled)

    def add(self, names: t.Sequence[str]) -> bool:
        """Push disks in, also while it runs; tell whether any was out."""
        pushed = [disk for disk in self.plugs.chosen(names) if disk not in self.plugs.present()]
        disk_files.make(self.directory, pushed)
        if self.pid and pushed:
            with Qmp(str(self.directory / "qmp")) as qmp:
                for disk in pushed:
                    self._push(qmp, disk)
                    self.plugs.push([disk])
        self.plugs.push(pushed)
        return bool(pushed)

    def _push(self, qmp: Qmp, disk: Disk) -> None:
        node = block_node(str(self.directory), disk)
        qmp.ask("blockdev-add", node)
        try:
            qmp.ask("device_add", device(self.spec, disk))
        except MachineError:
            with contextlib.suppress(MachineError):
                qmp.ask("blockdev-del", {"node-name": node["node-name"]})
            raise

    def digest(self, name: str) -> str:
        """SHA-256 of a disk's content; what a running system holds back in its memory is not in it."""
        return disk_files.digest(self.directory, self.plugs.chosen([name])[0])

    def backing(self, name: str) -> Path:
        """The file with a disk's content, to be written to while the machine is off."""
        return self.directory / f"{self.plugs.chosen([name])[0].name}.raw"

    def ask(self, command: str, arguments: t.Mapping[str, t.Any] | None = None) -> t.Any:
        """Send one QMP command."""
        if not self.pid:
            raise MachineError(f"{self.name} is off")
        with Qmp(str(self.directory / "qmp")) as qmp:
            return qmp.ask(command, arguments)

    def _unused(self, disk: Disk) -> None:
        if self.pid and disk in self.plugs.present():
            raise MachineError(f"{disk.name} is plugged into {self.name}, which runs: stop it or remove the disk first")

    def _told(self) -> list[seed.File]:
        """What it learns at boot: of the lab, and of itself."""
        own = {"hostname": f"{self.name}\n", "address": f"{self.spec.address}\n"}
        if self.spec.route_out:
            own["route_out"] = "10.0.2.2\n"
        files = [seed.File(name, text.encode()) for name, text in own.items()]
        for folder in (self.state_dir / "node", self.directory / "seed"):
            paths = sorted(folder.iterdir()) if folder.is_dir() else []
            files += [seed.File(path.name, path.read_bytes(), path.stat().st_mode & 0o777) for path in paths]
        return files


def _pull(qmp: Qmp, disk: Disk) -> None:
    qmp.ask("device_del", {"id": disk.name})
    if not qmp.await_event("DEVICE_DELETED", PATIENCE, device=disk.name):
        raise MachineError(
            f"the system did not let go of {disk.name} within {PATIENCE:g} s; a system that is still booting cannot"
        )
    qmp.ask("blockdev-del", {"node-name": f"{disk.name}-content"})
