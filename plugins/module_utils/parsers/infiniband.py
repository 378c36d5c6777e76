# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports of RDMA devices: from sysfs, from ``ibstat`` and from ``ibstatus``, in the same words.

A device name proves nothing (mlx5_an0 is Ethernet, mlx5_0 can be either): `Port.link_layer` says what a port is.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field, replace
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, FirstCause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, lines, number

_STATES = {"Init": "Initializing", "Nop": "No state change", "Active_defer": "ActiveDefer"}
_CA = re.compile(r"(?:CA|Switch|Router|iWARP RNIC|\?\?\?):? '(.{1,200})'")
_PORT = re.compile(r"Port (\d{1,5}):")
_STATUS = re.compile(r"Infiniband device '(.{1,200})' port (\d{1,5}) status:")
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_LAYERS = ("InfiniBand", "Ethernet")
_EMPTY = (
    (r"can't (?:init UMAD|list IB device|list ports)|IB device can't be found|stat of IB device", "software"),
    (r"Fatal error:", "software"),
)


@dataclass(frozen=True)
class Port:
    """One port. States are spelled as ibstat does; what was not said is None."""

    device: str
    port: int
    state: str | None = None
    physical_state: str | None = None
    rate_gbps: float | None = None
    rate: str | None = None
    link_layer: str | None = None
    sm_lid: int | None = None
    type: str | None = None
    firmware: str | None = None
    pci: str | None = None
    numa_node: int | None = None
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def infiniband(self) -> bool:
        return self.link_layer == "InfiniBand"

    @property
    def active(self) -> bool:
        return self.state == "Active" and self.physical_state == "LinkUp"


@dataclass(frozen=True)
class InfinibandLog:
    """The ports that a text tells of; ``ok`` says that each is described whole, not that each is healthy."""

    ports: list[Port]
    complete: bool
    ok: bool
    cause: Cause | None


def parse(source: Source) -> InfinibandLog:
    """Read what ibstat or ibstatus printed; never raises. No text at all means no device, and is not ok."""
    ports: list[Port] = []
    first, device = FirstCause(_EMPTY), ""
    about: dict[str, t.Any] = {}
    for line in lines(source):
        adapter, status, port = _CA.fullmatch(line), _STATUS.fullmatch(line), _PORT.fullmatch(line)
        if adapter:
            device, about = adapter.group(1), {}
        elif status:
            device, about = status.group(1), {}
            ports.append(Port(device, int(status.group(2))))
        elif port and device:
            ports.append(Port(device, int(port.group(1)), **about))
        elif ":" in line:
            name, _colon, value = (part.strip() for part in line.partition(":"))
            fields = _port_fields(name, value)
            about = {**about, **{key: fields[key] for key in ("type", "firmware") if key in fields}}
            if ports and ports[-1].device == device:
                ports[-1] = replace(ports[-1], **fields)
        first.see(line)
    # The link layer comes last.
    complete = bool(ports) and all(p.state and p.physical_state and p.rate and p.link_layer in _LAYERS for p in ports)
    return InfinibandLog(ports, complete, complete and first.cause is None, first.cause)


def parse_ibstat(source: Source) -> list[Port]:
    """Return the ports that ibstat lists."""
    return parse(source).ports


def parse_ibstatus(source: Source) -> list[Port]:
    """Return the ports that ibstatus lists."""
    return parse(source).ports


def read_sysfs(root: str = "/sys") -> list[Port]:
    """Return the ports that the kernel has, with place and counters; none without a driver."""
    devices = Path(root) / "class" / "infiniband"
    ports = []
    for device in _listed(devices):
        about = {
            "type": _text(device / "hca_type"),
            "firmware": _text(device / "fw_ver"),
            "pci": _pci(device / "device"),
            "numa_node": _node(device / "device" / "numa_node"),
        }
        for port in _listed(device / "ports"):
            if port.name.isdigit():
                ports.append(_sysfs_port(device.name, port, about))
    return ports


def _sysfs_port(device: str, path: Path, about: t.Mapping[str, t.Any]) -> Port:
    fields: dict[str, t.Any] = {}
    for name in ("state", "phys_state", "rate", "link_layer", "sm_lid"):
        fields.update(_port_fields(name.replace("_", " "), _text(path / name) or ""))
    values = {file.name: number(_text(file) or "") for file in _listed(path / "counters")}
    counters = {name: value for name, value in values.items() if isinstance(value, int)}
    return Port(device, int(path.name), **{**about, **fields}, counters=counters)


def _port_fields(name: str, value: str) -> dict[str, t.Any]:
    """Turn one line into fields; ibstat, ibstatus and sysfs name and spell them each its own way."""
    key = name.lower().replace("_", " ")
    if not value or value == "unknown":
        return {}
    if key == "state":
        word = value.split(": ")[-1].capitalize()
        return {"state": _STATES.get(word, word)}
    if key in ("physical state", "phys state"):
        return {"physical_state": value.split(": ")[-1].replace("Phy Test", "PhyTest")}
    if key == "rate":
        return {"rate_gbps": _float(value.split()[0]), "rate": value}
    if key == "link layer":
        # ibstatus says IB where the kernel is too old to know of anything else.
        return {"link_layer": "InfiniBand" if value == "IB" else value}
    if key == "sm lid":
        return {"sm_lid": _lid(value)}
    if key == "firmware version":
        return {"firmware": value}
    return {"type": value} if key.endswith(" type") else {}


def _float(text: str) -> float | None:
    value = number(text)
    return None if value is None else float(value)


def _lid(text: str) -> int | None:
    if re.fullmatch(r"0x[0-9a-fA-F]{1,8}", text):
        return int(text, 16)
    value = number(text)
    return value if isinstance(value, int) else None


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir(), key=lambda path: [int(p) if p.isdigit() else p for p in _parts(path.name)])
    except OSError:
        return []


def _parts(name: str) -> list[str]:
    """Split mlx5_ib10 so that it sorts after mlx5_ib2; text and digits alternate, so they never meet."""
    return re.split(r"([0-9]+)", name)


def _text(path: Path) -> str | None:
    """Counters of a port that is down can refuse to be read."""
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def _pci(device: Path) -> str | None:
    """The address stands in uevent, too, which survives in a copy that has no links."""
    match = re.search(r"^PCI_SLOT_NAME=(\S+)", _text(device / "uevent") or "", re.MULTILINE)
    name = match.group(1) if match else device.resolve().name
    return name if _PCI.fullmatch(name) else None


def _node(path: Path) -> int | None:
    value = number(_text(path) or "")
    return value if isinstance(value, int) and value >= 0 else None
