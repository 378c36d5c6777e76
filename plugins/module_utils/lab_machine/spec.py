# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a virtual machine of the lab is: plain data, checked when it is read. Private."""

from __future__ import annotations

import re
import typing as t
import zlib

_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}\Z")
_DISK = re.compile(r"[a-z][a-z0-9]{0,19}\Z")
_SERIAL = re.compile(r"[A-Za-z0-9_-]{1,20}\Z")
_ACCELERATORS = ("kvm", "tcg")
# Below the range that Linux takes for outgoing connections.
_PORTS = range(23000, 32000)


class MachineError(ValueError):
    """A machine cannot be what is wanted; the text is fit for the user."""


class Disk(t.NamedTuple):
    """An NVMe controller with one namespace."""

    name: str
    size: int
    serial: str


class Spec(t.NamedTuple):
    """Everything that decides how a machine is started; a machine with another one is another machine."""

    name: str
    image: str
    memory: int
    cpus: int
    port: int
    address: str
    network: str
    accelerator: str
    disks: tuple[Disk, ...]
    slots: int
    route_out: bool
    kernel_options: tuple[str, ...]
    options: tuple[str, ...]


def read(data: t.Mapping[str, t.Any]) -> Spec:
    """Make a specification of what JSON or YAML held."""
    try:
        disks = tuple(Disk(str(disk["name"]), int(disk["size"]), str(disk["serial"])) for disk in data["disks"])
        spec = Spec(
            name=str(data["name"]),
            image=str(data["image"]),
            memory=int(data["memory"]),
            cpus=int(data["cpus"]),
            port=int(data["port"]),
            address=str(data["address"]),
            network=str(data["network"]),
            accelerator=str(data["accelerator"]),
            disks=disks,
            slots=int(data["slots"]),
            route_out=bool(data["route_out"]),
            kernel_options=tuple(str(option) for option in data["kernel_options"]),
            options=tuple(str(option) for option in data["options"]),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise MachineError(f"the description of a machine is not sound: {exc!r}") from exc
    found = _findings(spec)
    if found:
        raise MachineError(f"machine {spec.name}: {'; '.join(found)}")
    return spec


def plain(spec: Spec) -> dict[str, t.Any]:
    """The specification as JSON holds it."""
    lists = {"kernel_options": list(spec.kernel_options), "options": list(spec.options)}
    return {**spec._asdict(), **lists, "disks": [disk._asdict() for disk in spec.disks]}


def _findings(spec: Spec) -> list[str]:
    names, serials = [disk.name for disk in spec.disks], [disk.serial for disk in spec.disks]
    rules = [
        (_NAME.match(spec.name), f"name {spec.name!r}; accepted: up to 20 lower-case letters, digits and hyphens"),
        (256 <= spec.memory <= 1 << 20, f"memory {spec.memory} MiB; accepted: 256 to 1048576"),
        (1 <= spec.cpus <= 64, f"{spec.cpus} cpus; accepted: 1 to 64"),
        (1024 <= spec.port < 65536, f"port {spec.port}; accepted: 1024 to 65535"),
        (spec.accelerator in _ACCELERATORS, f"accelerator {spec.accelerator}; accepted: {', '.join(_ACCELERATORS)}"),
        (
            len(spec.disks) <= spec.slots <= 30,
            f"{len(spec.disks)} disks in {spec.slots} slots; accepted: up to 30 slots",
        ),
        (all(map(_DISK.match, names)), f"disks {names}; accepted: names of lower-case letters and digits"),
        (len(set(names)) == len(names), f"disks {names}; accepted: each name once"),
        (all(map(_SERIAL.match, serials)), f"serials {serials}; accepted: up to 20 letters, digits, _ and -"),
        (len(set(serials)) == len(serials), f"serials {serials}; accepted: each serial once"),
        (all(disk.size >= 1 << 20 for disk in spec.disks), "a disk below 1 MiB"),
    ]
    return [text for sound, text in rules if not sound]


def group(directory: str) -> str:
    """A multicast group for the machines of one lab, so that two labs do not hear each other."""
    digest = zlib.crc32(directory.encode())
    return f"239.{digest >> 16 & 255}.{digest >> 8 & 255}.{digest & 255}:{_PORTS.start - 1}"


def port(directory: str, taken: t.Container[int], free: t.Callable[[int], bool]) -> int:
    """Choose the port of this machine that leads to a machine's SSH: the same again as long as nobody else has it."""
    first = zlib.crc32(directory.encode()) % len(_PORTS)
    for number in (*_PORTS[first:], *_PORTS[:first]):
        if number not in taken and free(number):
            return number
    raise MachineError(f"no free port from {_PORTS.start} to {_PORTS.stop - 1}")
