# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``ibnetdiscover`` of infiniband-diags, also with ``-g`` and ``-f``: switches, adapters and links."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, Tail, lines

SWITCH, ADAPTER, ROUTER = "Switch", "Ca", "Rt"
_KINDS = {"S": SWITCH, "H": ADAPTER, "R": ROUTER}
_HEADER = re.compile(r"#\s*Topology file: generated on ")
# A description is another machine's own text: it may hold quotes and what looks like the rest of the line.
_NODE = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"([SHR])-([0-9a-f]{16})"\s+#\s+"(.*)"')
# Where blanks have replaced its tabs, the number of the port reads like a tag of Intel MPI, and is gone.
_PORT = re.compile(
    r'(?:\[(\d{1,3})\](?:\[ext \d+\])?(?:\([0-9a-f]+\))?\s+)?"([SHR])-([0-9a-f]{16})"\[(\d{1,3})\](?:\[ext \d+\])?'
    r'\s*(?:\([0-9a-f]+\))?\s+#\s+(?:lid \d+ lmc \d+ )?"(.*)" lid \d+ (\d+x\w+|\S+)'
)
_LIKELY = re.compile(r'\[\d+\]|"[SHR]-|(?:Switch|Ca|Rt)\s')


@dataclass(frozen=True)
class FabricDevice:
    """A switch (one ASIC), an adapter or a router; the GUID is that of the node, 16 digits."""

    kind: str
    guid: str
    description: str


@dataclass(frozen=True)
class FabricPort:
    """A port of a device (0 if not told) and the one at the other end; the rate is the tool's text, such as 4xNDR."""

    guid: str
    port: int
    peer: str
    peer_port: int
    rate: str


@dataclass
class FabricRun:
    """What was discovered; ``unread`` are lines that look like a device or a port and cannot be read."""

    devices: dict[str, FabricDevice] = field(default_factory=dict)
    ports: list[FabricPort] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    header: bool = False
    whole: bool = True

    @property
    def complete(self) -> bool:
        return self.header and self.whole and not self.unread and bool(self.devices)


def parse(source: Source) -> FabricRun:
    """Read one discovery; never raises, whatever the text."""
    run, tail, owner = FabricRun(), Tail(), ""
    for line in lines(source, tail):
        if line.startswith("#"):
            run.header = run.header or bool(_HEADER.match(line))
            continue
        device, port = _NODE.match(line), _PORT.match(line)
        if device and _KINDS[device.group(2)] == device.group(1):
            owner = device.group(3)
            run.devices[owner] = FabricDevice(device.group(1), owner, device.group(4))
        elif port and owner:
            number, kind, peer, peer_port, description, rate = port.groups()
            # With a map of names only this line has an adapter's.
            run.devices.setdefault(peer, FabricDevice(_KINDS[kind], peer, description))
            run.ports.append(FabricPort(owner, int(number or 0), peer, int(peer_port), rate))
        elif _LIKELY.match(line):
            run.unread.append(line)
            owner = "" if line[0].isalpha() else owner
    run.whole = not tail.cut
    return run
