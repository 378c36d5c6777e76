# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program ``machine``: the lab's virtual machines by hand and for roles. Private."""

from __future__ import annotations

import argparse
import json
import os
import sys
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine import accelerator
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.lab import Lab
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.machine import PATIENCE
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.lab_machine.spec import MachineError

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
    command("digest", _digest, "SHA-256 of disks (all by default)", "name", "disk*")
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
    os.execvp(argv[0], argv)  # noqa: S606 - the user's own terminal


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
    return accelerator.choose(image, image.parent / "accelerator.json")._asdict()
