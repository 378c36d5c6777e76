# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All virtual machines of a lab: the plan, the change, and the program ``machine``."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import sys
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.lab.machine import machine
from ansible_collections.hpcai.gpu_cluster.lab.machine.machine import (
    PATIENCE,
    Machine,
    MachineError,
    MachineSpec,
    group,
    plain,
    port,
    read,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run

# What has to be done so that the wanted machines run: a pure function.


class MachineAction(t.NamedTuple):
    """One step: remove, make or start a machine, and why."""

    kind: str
    name: str
    reason: str


class Known(t.NamedTuple):
    """A machine that is there; without a specification when its description cannot be read."""

    spec: MachineSpec | None
    running: bool


def plan(known: t.Mapping[str, Known], wanted: t.Mapping[str, MachineSpec]) -> list[MachineAction]:
    """Return the steps in their order; none when all is as wanted."""
    todo = [MachineAction("remove", name, "not wanted any more") for name in known if name not in wanted]
    for name, spec in wanted.items():
        now = known.get(name)
        if now is None:
            todo += [MachineAction("make", name, "new"), MachineAction("start", name, "new")]
            continue
        reason = difference(now.spec, spec)
        if reason:
            todo += [MachineAction(kind, name, reason) for kind in ("remove", "make", "start")]
        elif not now.running:
            todo.append(MachineAction("start", name, "off"))
    return todo


def difference(now: MachineSpec | None, wanted: MachineSpec) -> str:
    """Say what makes a machine another one; empty when nothing does."""
    if now is None:
        return "its description cannot be read"
    fields = [field for field in MachineSpec._fields if getattr(now, field) != getattr(wanted, field)]
    return f"other {', '.join(fields)}" if fields else ""


# All machines of a lab: bring them to what is wanted, remove them.


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
                spec: MachineSpec | None = self.machine(name).spec
            except MachineError:
                spec = None
            found[name] = Known(spec, machine.pid_of(self._root / name) is not None)
        return found

    def wanted(self, machines: t.Iterable[t.Mapping[str, t.Any]]) -> dict[str, MachineSpec]:
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

    def apply(self, wanted: t.Mapping[str, MachineSpec], check: bool = False) -> list[MachineAction]:
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
        machine.kill(self._root / name)
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

    def _make(self, spec: MachineSpec) -> None:
        """Complete or not at all: the description comes last, without it the machine is made anew."""
        directory = self._root / spec.name
        seed = directory / "seed"
        seed.mkdir(parents=True, exist_ok=True)
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", spec.name, "-f", str(seed / _HOST_KEY)]
        done = run(key, timeout=60)
        if done.problem:
            raise MachineError(f"Cannot make the SSH host key of {spec.name}. ssh-keygen: {done.problem}")
        machine.make_root(directory, spec.image)
        machine.make(directory, spec.disks)
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


# The program ``machine``: the lab's virtual machines by hand and for roles.


Arguments = argparse.Namespace


def main(arguments: t.Sequence[str]) -> int:
    """Do what the arguments say; every outcome is one line of JSON."""
    given = parser().parse_args(arguments)
    try:
        answer = given.do(given)
    except (MachineError, OSError) as exc:
        sys.stderr.write(f"{given.command}: {exc}\n")
        return 1
    sys.stdout.write(f"{json.dumps(answer)}\n")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="machine", description=__doc__)
    top.add_argument("--lab", default=os.environ.get("HPCAI_LAB", ".build/lab"), help="state directory of the lab")
    commands = top.add_subparsers(dest="command", required=True)

    def command(name: str, do: t.Callable[[Arguments], t.Any], text: str, *names: str) -> argparse.ArgumentParser:
        found = commands.add_parser(name, help=text, description=text)
        found.set_defaults(do=do)
        for argument in names:
            found.add_argument(argument.rstrip("*"), nargs="*" if argument.endswith("*") else None)
        return found

    command("status", _status, "show every machine")
    for name, text in (("start", "switch on"), ("kill", "take the power away"), ("reset", "press the reset button")):
        command(name, _press, text, "name")
    command("stop", _press, "press the power button and wait until it is off", "name")
    wait = command("wait", _wait, "wait until it has booted", "name*")
    wait.add_argument("--seconds", type=float, default=PATIENCE)
    wait.add_argument("--after", default="", help="identity of the boot before")
    blank = command("blank", _blank, "empty disks (all by default); it is off, or they are removed", "name", "disk*")
    blank.add_argument("--replace", action="store_true", help="by disks with other serial numbers")
    for name, text in (("remove", "pull disks out, also while it runs"), ("add", "push them in again")):
        command(name, _plug, text, "name", "disk*")
    command("digest", _digest, "a digest of what is on disks (all by default)", "name", "disk*")
    command("ssh", _ssh, "a shell, or a command, as root", "name").add_argument("words", nargs=argparse.REMAINDER)
    apply = command("apply", _apply, "bring all machines to the description on standard input")
    apply.add_argument("--check", action="store_true", help="only say what would be done")
    command("absent", _absent, "remove all machines").add_argument("--check", action="store_true")
    command("tell", _tell, "tell running machines what changed since they booted, such as names of others")
    command("accelerator", _accelerator, "which accelerator boots an image here", "image")
    return top


def _status(given: Arguments) -> t.Any:
    lab = Lab(given.lab)
    machines = {name: lab.machine(name) for name in lab.names()}
    return {
        name: {
            "pid": machine.pid,
            "port": machine.spec.port,
            "address": machine.spec.address,
            "accelerator": machine.spec.accelerator,
            "disks": {disk.name: disk.serial for disk in machine.plugs.present()},
            "removed": sorted({disk.name for disk in machine.plugs.all()} - {d.name for d in machine.plugs.present()}),
            "console": str(machine.directory / "console.log"),
        }
        for name, machine in machines.items()
    }


def _press(given: Arguments) -> t.Any:
    done = getattr(Lab(given.lab).machine(given.name), given.command)()
    return {"changed": done is None or bool(done)}


def _wait(given: Arguments) -> t.Any:
    lab = Lab(given.lab)
    return {name: lab.machine(name).wait(given.seconds, given.after) for name in given.name or lab.names()}


def _blank(given: Arguments) -> t.Any:
    Lab(given.lab).machine(given.name).blank(given.disk, given.replace)
    return {"changed": True}


def _plug(given: Arguments) -> t.Any:
    return {"changed": getattr(Lab(given.lab).machine(given.name), given.command)(given.disk)}


def _digest(given: Arguments) -> t.Any:
    machine = Lab(given.lab).machine(given.name)
    return {disk.name: machine.digest(disk.name) for disk in machine.plugs.chosen(given.disk)}


def _ssh(given: Arguments) -> t.NoReturn:
    argv = Lab(given.lab).machine(given.name).system.argv(*given.words)
    if given.words and sys.stdin.isatty():
        argv.insert(1, "-t")
    os.execvp(argv[0], argv)


def _apply(given: Arguments) -> t.Any:
    lab = Lab(given.lab)
    wanted = lab.wanted(json.load(sys.stdin))
    todo = lab.apply(wanted, given.check)
    machines = {name: {"port": spec.port, "host_key": lab.host_key(name)} for name, spec in wanted.items()}
    return {"changed": bool(todo), "actions": [action._asdict() for action in todo], "machines": machines}


def _absent(given: Arguments) -> t.Any:
    todo = Lab(given.lab).apply({}, given.check)
    return {"changed": bool(todo), "actions": [action._asdict() for action in todo]}


def _tell(given: Arguments) -> t.Any:
    told = Lab(given.lab).tell()
    return {"changed": bool(told), "machines": told}


def _accelerator(given: Arguments) -> t.Any:
    image = Path(given.image)
    return machine.choose(image, image.parent / "accelerator.json")._asdict()
