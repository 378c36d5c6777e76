# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs a node has and which are missing. Pure, private.

Indexes are those of nvidia-smi and CUDA. Both count in PCI order, over the GPUs that the driver knows: one that does
not answer keeps its index, one that is not on the bus does not.
"""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers._nvidia_smi_document import Run as Query
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_gpu import Gpu
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import (
    Address,
    TopologyError,
    address,
    bus_id,
)

_HIDDEN = "it is on the PCI bus, but the driver does not show it"
_UNKNOWN = "which one it is cannot be told"


class Expected(t.NamedTuple):
    """A GPU as a profile describes it."""

    pci_domain: int
    numa_node: int


@dataclass(frozen=True)
class Missing:
    """A GPU that does not answer; ``index`` is its place among all GPUs of the node, if that is known."""

    index: int | None
    bus_id: str | None
    numa_node: int | None
    why: str

    def __str__(self) -> str:
        parts = [] if self.index is None else [f"GPU {self.index}"]
        parts += [self.bus_id] if self.bus_id else []
        parts += [] if self.numa_node is None else [f"NUMA node {self.numa_node}"]
        return f"{', '.join(parts) or 'a GPU'}: {self.why}"


class Inventory(t.NamedTuple):
    """GPUs by index, those that are missing, and how many metrics each check must have."""

    gpus: dict[int, Gpu]
    missing: list[Missing]
    planned: list[int]


def expected(rows: t.Sequence[t.Any]) -> list[Expected]:
    """Read ``topology.gpus`` of a profile."""
    found = []
    for row in rows:
        domain, node = (row.get("pci_domain"), row.get("numa_node")) if isinstance(row, dict) else (None, None)
        where = address(f"{domain:0>4}:00:00.0") if isinstance(domain, str) else None
        if where is None or isinstance(node, bool) or not isinstance(node, int):
            raise TopologyError(f"a GPU of a topology is {{pci_domain: '000b' (in quotes), numa_node: 3}}, not {row!r}")
        found.append(Expected(where[0], node))
    return found


def nodes_of(profile: t.Sequence[Expected], there: t.Iterable[Address]) -> dict[Address, int | None]:
    """Return the NUMA node that a profile expects of each GPU; None where it does not say which GPU it means.

    On Azure every GPU has a PCI domain of its own. On bare metal all share domain 0000: there the order along the bus
    decides, which is known only while none is missing.
    """
    found: dict[Address, int | None] = {}
    for domain, group in itertools.groupby(sorted(there), key=lambda where: where[0]):
        members = list(group)
        nodes = [gpu.numa_node for gpu in profile if gpu.pci_domain == domain]
        if len(nodes) == len(members) or len(set(nodes)) == 1:
            found.update(zip(members, nodes if len(nodes) == len(members) else nodes[:1] * len(members)))
        elif nodes:
            found.update(dict.fromkeys(members))
    return found


def take(query: Query, on_bus: t.Sequence[str], profile: t.Sequence[Expected], count: int) -> Inventory:
    """Give every GPU its index, and name what is missing by all that is known of it."""
    count = count or len(profile)
    alive = [gpu for gpu in query.gpus if gpu.error is None]
    there = [where for where in (address(gpu.bus_id) for gpu in alive) if where]
    lost, numbered = _lost(query, there)
    attached = query.attached_gpus or 0
    # A container may be given some of the host's GPUs, so the bus and the profile only explain what is too few.
    wanted = max(count, attached) - len(alive) - len(lost) - len(numbered)
    hidden = _explain(on_bus, [*there, *lost], wanted)
    absent = _absent(profile, [*there, *lost, *hidden], wanted - len(hidden), bool(on_bus))
    # What the driver counts without showing it has an index; the bus tells which one it is.
    counted = [*lost, *(hidden if attached >= len(alive) + len(lost) + len(hidden) else [])]
    gpus = _indexed(alive, there, counted, set(numbered))
    missing = _named({**lost, **hidden, **absent}, there, profile, count)
    missing += [Missing(index, None, None, why) for index, why in sorted(numbered.items())]
    missing += [Missing(None, None, None, _UNKNOWN)] * (wanted - len(hidden) - len(absent))
    highest = max([count, len(alive) + len(counted), *(index + 1 for index in [*gpus, *numbered])])
    return Inventory(gpus, missing, list(range(highest)))


def _explain(on_bus: t.Sequence[str], known: t.Sequence[Address], wanted: int) -> dict[Address, str]:
    hidden = {where: _HIDDEN for where in map(address, on_bus) if where and where not in known}
    return hidden if len(hidden) <= wanted else {}


def _lost(query: Query, there: t.Sequence[Address]) -> tuple[dict[Address, str], dict[int, str]]:
    """Return the GPUs that nvidia-smi complains about, or shows without values: by address, else by index."""
    found: dict[Address, str] = {}
    numbered: dict[int, str] = {}
    for gpu in query.gpus:
        where = address(gpu.bus_id)
        if gpu.error and where:
            found[where] = gpu.error
    for message in query.messages:
        where = address(message.bus_id or "")
        if where and where not in there:
            found.setdefault(where, message.text)
        elif not where and message.index is not None:
            numbered.setdefault(message.index, message.text)
    return found, numbered


def _indexed(
    alive: t.Sequence[Gpu], there: t.Sequence[Address], counted: t.Sequence[Address], taken: set[int]
) -> dict[int, Gpu]:
    free = (index for index in itertools.count() if index not in taken)
    if len(there) < len(alive):
        # A document that was cut off: the last GPU may lack its address.
        return dict(zip(free, alive))
    gpus = dict(zip(there, alive))
    return {index: gpus[where] for index, where in zip(free, sorted({*there, *counted})) if where in gpus}


def _absent(profile: t.Sequence[Expected], known: t.Sequence[Address], wanted: int, bus: bool) -> dict[Address, str]:
    """Return what the profile has and the node has not; without a look at the bus only the driver can be quoted."""
    domains = {where[0] for where in known}
    who = "there is" if bus else "the driver shows"
    found = {
        (gpu.pci_domain, 0, 0, 0): f"{who} no GPU in PCI domain {gpu.pci_domain:04x}"
        for gpu in profile
        if gpu.pci_domain not in domains
    }
    return found if len(found) <= wanted else {}


def _named(
    gone: t.Mapping[Address, str], there: t.Sequence[Address], profile: t.Sequence[Expected], count: int
) -> list[Missing]:
    """Number the missing among all: that is known when all are, from a profile or because their number is right."""
    everything = sorted([*gone, *there])
    whole = len(everything) == (len(profile) or count)
    nodes = nodes_of(profile, everything)
    return [
        Missing(everything.index(where) if whole else None, bus_id(where), nodes.get(where), why)
        for where, why in sorted(gone.items())
    ]
