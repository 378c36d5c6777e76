# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a VM size is and whether it can be had here. No I/O. Private."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure.finding import Finding


class Restriction(t.NamedTuple):
    """Why a size cannot be had, everywhere here or in some zones."""

    kind: str
    reason: str
    zones: tuple[str, ...] = ()


class Sku(t.NamedTuple):
    """A VM size of one region. Capabilities are texts; one that is missing is unknown, not zero."""

    name: str
    family: str
    capabilities: t.Mapping[str, str]
    zones: tuple[str, ...] = ()
    restrictions: tuple[Restriction, ...] = ()

    def amount(self, capability: str) -> int | None:
        try:
            return int(float(self.capabilities[capability]))
        except (KeyError, ValueError):
            return None

    def flag(self, capability: str) -> bool | None:
        said = self.capabilities.get(capability, "").lower()
        return {"true": True, "false": False}.get(said)


@dataclasses.dataclass(frozen=True)
class Node:
    """A group of equal nodes, as asked for."""

    name: str
    size: str
    count: int = 1
    spot: bool = False
    image: str = ""
    zone: str = ""
    gpus: int | None = None
    rdma: bool | None = None
    nvme: bool | None = None
    price: float | None = None


_REASONS = {
    "NotAvailableForSubscription": "Ask Microsoft for access (a support request for quota), or choose another region.",
    "QuotaId": "This kind of subscription (such as a free trial) does not get it: use another kind.",
}


def zones_left(sku: Sku) -> list[str]:
    """Return the zones in which it can be had."""
    gone = {zone for one in sku.restrictions if one.kind == "Zone" for zone in one.zones}
    return sorted(set(sku.zones) - gone)


def facts(sku: Sku) -> dict[str, t.Any]:
    """Return what a cluster wants to know of a size; None is unknown."""
    nvme = sku.amount("NvmeDiskSizeInMiB")
    return {
        "family": sku.family,
        "vcpus": sku.amount("vCPUs"),
        "gpus": sku.amount("GPUs"),
        "rdma": sku.flag("RdmaEnabled"),
        "nvme": None if nvme is None else nvme > 0,
        "memory_gb": sku.amount("MemoryGB"),
        "architecture": sku.capabilities.get("CpuArchitectureType"),
        "generations": [part for part in sku.capabilities.get("HyperVGenerations", "").split(",") if part],
        "zones": zones_left(sku),
    }


def judge(node: Node, sku: Sku | None, location: str) -> list[Finding]:
    """Return what stands against a group of nodes of this size."""

    def finding(problem: str, action: str, blocks: bool = True) -> Finding:
        return Finding("size", node.name, f"{node.size} in {location} {problem}", action, blocks)

    if sku is None:
        return [finding("is not offered.", "Check how it is written (az vm list-skus), or choose another region.")]
    found = []
    for one in sku.restrictions:
        if one.kind == "Location":
            action = _REASONS.get(one.reason, "Choose another region.")
            found.append(finding(f"is closed to this subscription ({one.reason}).", action))
    found += [finding(*pair) for pair in _zones(node, sku)]
    found += [finding(*triple) for triple in _capabilities(node, sku)]
    return found


def _zones(node: Node, sku: Sku) -> t.Iterator[tuple[str, str]]:
    left = zones_left(sku)
    listed = ", ".join(left) or "none"
    if node.zone and node.zone not in left:
        yield f"cannot be had in zone {node.zone}; zones left: {listed}.", "Choose one of these, or no zone."
    elif not node.zone and sku.zones and not left:
        yield "is closed to this subscription in every zone.", _REASONS["NotAvailableForSubscription"]


def _capabilities(node: Node, sku: Sku) -> t.Iterator[tuple[str, str, bool]]:
    known = facts(sku)
    for name in ("gpus", "rdma", "nvme"):
        wanted, real = getattr(node, name), known[name]
        if wanted is None or wanted == real:
            continue
        if real is None:
            yield (
                f"does not say what {name} it has; expected was {wanted}.",
                "Look at its page in Azure's documentation.",
                False,
            )
        else:
            yield (
                f"has {name} {real}; expected was {wanted}.",
                "Choose another size, or correct what is expected.",
                True,
            )
    if node.spot and sku.flag("LowPriorityCapable") is False:
        yield "cannot be had as Spot.", "Leave Spot out, or choose another size.", True
    if not known["vcpus"]:
        yield "does not say how many cores it has, so quota is not checked.", "Compare it with the portal.", False
