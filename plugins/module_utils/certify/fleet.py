# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes and options of a campaign, read and validated once. Pure, private."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, finite

STAGES = ("reach", "local", "pair", "confirm", "ladder")
COLLECTIVES = ("all_reduce", "alltoall")
ROUND_ROBIN = 16  # nodes; below, there are too few known-good partners for anything cleverer
SECONDS = {"reach": 10.0, "local": 300.0, "pair": 120.0, "ladder": 300.0}


class CampaignError(ValueError):
    """The fleet or an option makes no sense; the text is fit for the user."""


# The most that earlier certificates count for. Of three nodes each meets others twice in three rounds, and four times
# to confirm: six good tests have to outweigh it, or a node that was repaired would stay out with good tests alone.
_HISTORY = 0.3


class FleetNode(t.NamedTuple):
    """One node of the fleet as the request has it."""

    name: str
    leaf: str = ""
    pod: str = ""
    physical_host: str = ""
    state: str = "idle"
    reason: str = ""
    suspicion: float = 0.0


class CampaignOptions(t.NamedTuple):
    """How the campaign goes; see the certification role for what each of them means."""

    run: str = ""
    seed: int = 0
    k: int = 3
    confirm_rounds: int = 4
    drain_at: float = 0.95
    clear_at: float = 0.004
    settle_at: float = 0.999
    q0: float = 0.5
    e0: float = 0.01
    prior: float = 0.02
    material: float = 0.03
    max_share: float = 0.05
    max_leaf: int = 3
    concurrent: int = 0
    gpus_per_node: int = 0
    cost_per_gpu_hour: float = 0.0
    rails: bool = False
    stages: tuple[str, ...] = STAGES
    collectives: tuple[str, ...] = COLLECTIVES
    seconds: t.Mapping[str, float] = SECONDS


_RANGES: dict[str, tuple[float, float]] = {
    "k": (1, 16),
    "confirm_rounds": (0, 16),
    "drain_at": (0.5, 1),
    "clear_at": (0, 0.5),
    "settle_at": (0.5, 1),
    "q0": (0.01, 0.99),
    "e0": (1e-6, 0.05),
    "prior": (1e-6, 0.5),
    "material": (0, 0.5),
    "max_share": (0, 1),
    "max_leaf": (1, math.inf),
    "concurrent": (0, math.inf),
    "gpus_per_node": (0, math.inf),
    "cost_per_gpu_hour": (0, math.inf),
}


def read_options(given: t.Mapping[str, t.Any]) -> CampaignOptions:
    """Return the options; one that is not given has its default, unknown names are left to others."""
    blank = CampaignOptions()
    values = {name: given[name] for name in CampaignOptions._fields if given.get(name) is not None}
    for name, value in values.items():
        if name in _RANGES:
            _number(name, value, isinstance(getattr(blank, name), int))
    if values.get("drain_at", 1) <= values.get("clear_at", 0):
        raise CampaignError("drain_at must lie above clear_at")
    for name in ("stages", "collectives"):
        values[name] = tuple(str(item) for item in values.get(name, getattr(blank, name)))
    unknown = sorted(set(values["stages"]) - set(STAGES))
    if unknown:
        raise CampaignError(f"stages has {', '.join(unknown)}; accepted are {', '.join(STAGES)}")
    unknown = sorted(set(values["collectives"]) - set(COLLECTIVES))
    if unknown or not values["collectives"]:
        raise CampaignError(f"collectives has {', '.join(unknown) or 'none'}; accepted are {', '.join(COLLECTIVES)}")
    if not isinstance(values.get("seconds", {}), dict):
        raise CampaignError(f"seconds is {values['seconds']!r}; seconds by stage are needed")
    seconds = {**SECONDS, **values.get("seconds", {})}
    for name, value in seconds.items():
        if (finite(value) or 0) <= 0:
            raise CampaignError(f"seconds.{name} is {value!r}; a number above 0 is needed")
    return blank._replace(**{**values, "seconds": seconds})


def _number(name: str, value: t.Any, whole: bool) -> None:
    least, most = _RANGES[name]
    if finite(value) is None or not least <= value <= most or (whole and value != int(value)):
        kind = "whole number" if whole else "number"
        raise CampaignError(f"{name} is {value!r}; a {kind} from {least:g} to {most:g} is needed")


def read_nodes(fleet: t.Mapping[str, t.Any]) -> list[FleetNode]:
    """Return the nodes in the order of their names."""
    given = fleet.get("nodes")
    if not isinstance(given, list) or not given:
        raise CampaignError("the fleet names no nodes")
    nodes = {}
    for item in given:
        node = _node(item)
        if node.name in nodes:
            raise CampaignError(f"node {node.name} is named twice")
        nodes[node.name] = node
    return [nodes[name] for name in sorted(nodes)]


def _node(item: t.Any) -> FleetNode:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str) or not item["name"]:
        raise CampaignError(f"a node of the fleet has no name: {item!r:.200}")
    texts = {key: str(item.get(key) or "") for key in ("leaf", "pod", "physical_host", "reason")}
    suspicion = finite(item.get("suspicion")) or 0.0
    state = str(item.get("state") or "idle").lower()
    return FleetNode(item["name"], state=state, suspicion=min(_HISTORY, max(0.0, suspicion)), **texts)


def away(node: FleetNode) -> str:
    """Return why a node takes no part, or nothing: only idle ones do."""
    return "" if node.state == "idle" else f"{node.state}{f': {node.reason}' if node.reason else ''}"


def profile(fleet: t.Mapping[str, t.Any]) -> Json:
    """Return the machine type's profile."""
    given = fleet.get("profile")
    return given if isinstance(given, dict) else {}
