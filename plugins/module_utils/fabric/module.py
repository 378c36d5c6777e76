# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module slurm_topology_info without Ansible, and where nodes are, as its sources say it. Private, stdlib only.

Sources are a cloud, an inventory, or the cables of InfiniBand.
"""

from __future__ import annotations

import json
import re
import typing as t
from collections import Counter, deque

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.fabric.model import (
    FabricError,
    Place,
    Placement,
    leaves,
    natural,
    settle,
    without_common,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import ibnetdiscover
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.conf import lines
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, compress, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import fields

SOURCES = ("hosts", "infiniband", "google", "aws")
Record = t.Dict[str, t.Any]
PlaceRecord = t.Mapping[str, t.Any]


def perform(params: t.Mapping[str, t.Any], text: str, present: str) -> Record:
    """Return switches, leaves and findings; ``present`` is the topology.conf or topology.yaml that there is."""
    nodes = list(dict.fromkeys(name for item in params["nodes"] for name in expand(str(item))))
    if not nodes:
        raise FabricError("nodes is empty: it has to name all nodes of the cluster")
    placement = _placement(params, nodes, text)
    joined = params["joined"] if params["joined"] is not None else params["source"] != "infiniband"
    tree, findings, missing = settle(placement, nodes, before(present), joined)
    below = {child for switch in tree for child in switch.get("switches") or []}
    tops = [switch["name"] for switch in tree if switch["name"] not in below]
    if len(tops) > 1:
        findings.append(
            f"nothing joins {', '.join(tops)}: Slurm gives no job nodes of several of them. Set joined if jobs may"
            " span them"
        )
    return {"switches": tree, "leaves": leaves(tree), "missing": missing, "findings": findings}


def _placement(params: t.Mapping[str, t.Any], nodes: t.Sequence[str], text: str) -> Placement:
    source = params["source"]
    names = {str(key): str(value) for key, value in params["names"].items()}
    if source == "infiniband":
        return infiniband(text, nodes, names)
    if source == "hosts":
        placement = hosts(params["hosts"])
        strange = sorted(set(placement.places) - set(nodes))
        if strange:
            raise FabricError(f"hosts names nodes that Slurm does not have: {', '.join(strange)}")
    else:
        placement = (google if source == "google" else aws)(text, names)
    if not set(placement.places) & set(nodes):
        raise FabricError(
            f"{source} tells of none of the nodes {', '.join(nodes[:8])}; it has"
            f" {', '.join(sorted(placement.places)[:8]) or 'no places at all'}. Say in names which is which"
        )
    return placement


# Lines of a topology.yaml as it is drawn here; one in another form, of a person, has no places.
_YAML_SWITCH = re.compile(r'    - (?:switch|block): ("[^"]+")')
_YAML_NODES = re.compile(r'      nodes: ("[^"]+")')


def before(text: str) -> dict[str, str]:
    """Return the switch or block that topology.conf, or our topology.yaml, has each node on; of several the first."""
    places: dict[str, str] = {}
    drawn = text.splitlines()
    for line, following in zip(drawn, drawn[1:]):
        switch, nodes = _YAML_SWITCH.fullmatch(line), _YAML_NODES.fullmatch(following)
        if switch and nodes:
            name = str(json.loads(switch.group(1)))
            places = {**dict.fromkeys(expand(str(json.loads(nodes.group(1)))), name), **places}
    if places:
        return places
    for line in lines(text):
        values = {key.lower(): value for key, value in fields(line).items()}
        try:
            names = expand(values.get("nodes", ""))
        except HostlistError:
            continue
        places.update(dict.fromkeys(names, values.get("switchname") or values.get("blockname") or ""))
    return places


# By the names that a cloud or an inventory has for places.


def hosts(given: PlaceRecord) -> Placement:
    """Read a place for each node, such as pod1/leaf3, from the top down."""
    places = {}
    for name, text in given.items():
        parts = tuple(part.strip() for part in str(text or "").split("/") if part.strip())
        if parts:
            places[str(name)] = parts
    return Placement(places, [])


def google(text: str, names: t.Mapping[str, str]) -> Placement:
    """Read ``gcloud compute instances list --format=json``: cluster, block and sub-block of each instance.

    Its own host is not looked at: hardly any two GPU machines share one.
    """
    places: dict[str, Place] = {}
    findings = []
    for item in _records(text, "", "gcloud compute instances list --format=json"):
        name = names.get(str(item.get("id"))) or names.get(str(item.get("name"))) or str(item.get("name"))
        status = item.get("resourceStatus") or {}
        topology = status.get("physicalHostTopology") or {}
        # Older answers have block, sub-block and host in one text.
        old = [part for part in str(status.get("physicalHost") or "").split("/") if part][:-1]
        place = tuple(str(topology[key]) for key in ("cluster", "block", "subblock") if topology.get(key)) or tuple(old)
        if place:
            places[name] = place
        else:
            findings.append(name)
    finding = (
        f"Google says of {', '.join(sorted(findings))} not where they are: physicalHostTopology is given for some"
        " machine types and for compact placement only"
    )
    return Placement(without_common(places), [finding] if findings else [])


def aws(text: str, names: t.Mapping[str, str]) -> Placement:
    """Read ``aws ec2 describe-instance-topology``: network nodes from the top of the network down to the instance's."""
    chains = {
        str(item.get("InstanceId")): tuple(str(node) for node in item.get("NetworkNodes") or [])
        for item in _records(text, "Instances", "aws ec2 describe-instance-topology")
    }
    places = {names.get(instance, instance): place for instance, place in chains.items() if place}
    return Placement(without_common(places), [])


def _records(text: str, key: str, command: str) -> list[PlaceRecord]:
    try:
        answer = json.loads(text)
    except ValueError as exc:
        raise FabricError(f"this is not the JSON that '{command}' prints: {exc}") from exc
    records = answer.get(key) if key and isinstance(answer, dict) else answer
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise FabricError(f"this is not what '{command}' prints: {'a list ' + key if key else 'a list'} is missing")
    if isinstance(answer, dict) and answer.get("NextToken"):
        raise FabricError(f"this is only the first page of '{command}': it ends with NextToken")
    return records


# By the links of an InfiniBand fabric.
#
# A fat tree is no tree, since each leaf has many spines, and Slurm knows only trees. So a switch of Slurm stands for
# what reaches each other without going further up: on the lowest level for the nodes that are on the same leaf switches
# (several of them, where each adapter of a node has a rail of its own), above that for what is connected through the
# switches up to so many links away from a node.


_GUID = re.compile(r"(?:0x)?0*([0-9a-f]{1,16})", re.I)
# How managed switches of NVIDIA describe themselves: MF0;name:MQM9700/U1, of a director MF0;name:CS8500/L01/U1.
_MANAGED = re.compile(r"MF0;([^:;]+):[^/]+((?:/\w+)*)")
_NAMED = 8


def infiniband(text: str, nodes: t.Sequence[str], names: t.Mapping[str, str]) -> Placement:
    """Return where the nodes are; ``names`` maps what adapters are called, or their GUIDs, to Slurm's names."""
    run = ibnetdiscover.parse(text)
    if not run.complete:
        raise FabricError(_unread(run))
    owner, findings = _owners(run, nodes, names)
    ups: dict[str, set[str]] = {}
    for guid, other in _links(run):
        if guid in owner and run.devices[other].kind == ibnetdiscover.SWITCH:
            ups.setdefault(owner[guid], set()).add(other)
    if not ups:
        raise FabricError(_nobody(run, nodes))
    titles = _titles(run)
    groups, less = _groups(ups, titles)
    places = _places(run, groups, titles)
    return Placement(places, [*findings, *less])


def _unread(run: ibnetdiscover.FabricRun) -> str:
    if not run.header:
        return "this is no output of ibnetdiscover: the line '# Topology file: generated on ...' is missing"
    if run.unread:
        return f"ibnetdiscover printed {len(run.unread)} lines that cannot be read, such as {run.unread[0]!r:.200}"
    return (
        "the output of ibnetdiscover ends in the middle of a line: it was cut off"
        if run.devices
        else ("ibnetdiscover found no device: the port that it asks through has no link, or the subnet no manager")
    )


def _links(run: ibnetdiscover.FabricRun) -> set[tuple[str, str]]:
    """Return all links in both directions: each is printed at both of its ends, unless one does not answer."""
    return {pair for port in run.ports for pair in ((port.guid, port.peer), (port.peer, port.guid))}


def _owners(
    run: ibnetdiscover.FabricRun, nodes: t.Sequence[str], names: t.Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Return the node of each adapter: by the site's names, else by the host name that its description begins with."""
    known = set(nodes)
    strange = sorted(set(names.values()) - known, key=natural)
    if strange:
        raise FabricError(f"names leads to nodes that Slurm does not have: {', '.join(strange)}")
    guids = {match.group(1).lower(): node for key, node in names.items() for match in [_GUID.fullmatch(key)] if match}
    owner, others = {}, []
    for device in run.devices.values():
        if device.kind != ibnetdiscover.ADAPTER:
            continue
        word = (device.description.split() or [""])[0]
        short = word.partition(".")[0]
        node = guids.get(device.guid.lstrip("0")) or names.get(device.description) or names.get(word)
        node = node or next((name for name in (word, short) if name in known), None)
        if node:
            owner[device.guid] = node
        elif "Aggregation Node" not in device.description:  # SHARP's, inside a switch
            others.append(f"{device.description} (0x{device.guid})")
    dropped = f"{len(others)} adapters belong to no node of Slurm, such as {', '.join(sorted(others)[:_NAMED])}"
    return owner, [dropped] if others else []


def _nobody(run: ibnetdiscover.FabricRun, nodes: t.Sequence[str]) -> str:
    shown = sorted({d.description for d in run.devices.values() if d.kind == ibnetdiscover.ADAPTER}, key=natural)
    return (
        f"no adapter of the fabric goes by the name of one of {compress(sorted(nodes, key=natural))}; they are called"
        f" {', '.join(repr(text) for text in shown[:_NAMED]) or 'nothing'}. Say in names which is which"
    )


def _titles(run: ibnetdiscover.FabricRun) -> dict[str, str]:
    """Name switches as people do where that tells them apart, else by GUID as ibnetdiscover does."""
    switches = {device.guid: device for device in run.devices.values() if device.kind == ibnetdiscover.SWITCH}
    systems, asics = {}, {}
    for guid, device in switches.items():
        match = _MANAGED.fullmatch(device.description)
        systems[guid] = match.group(1) if match else device.description
        asics[guid] = "-".join([match.group(1), *match.group(2).split("/")[1:]]) if match else device.description
    once, each = Counter(systems.values()), Counter(asics.values())
    return {
        guid: systems[guid] if once[systems[guid]] == 1 else asics[guid] if each[asics[guid]] == 1 else f"S-{guid}"
        for guid in switches
    }


def _groups(ups: t.Mapping[str, set[str]], titles: t.Mapping[str, str]) -> tuple[dict[str, frozenset[str]], list[str]]:
    """Return the leaf switches that stand for each node; one that lacks links of its neighbours is with them."""
    sets = Counter(frozenset(own) for own in ups.values())
    groups, findings = {}, []
    for node in sorted(ups, key=natural):
        own = frozenset(ups[node])
        wider = sorted((other for other in sets if own < other and sets[other] >= sets[own]), key=len)
        # Of the widest, if all others are parts of it: else nobody can say whose neighbour it is.
        whole = wider[-1] if wider and all(other <= wider[-1] for other in wider) else own
        groups[node] = whole
        if whole != own:
            away = ", ".join(sorted((titles[guid] for guid in whole - own), key=natural))
            findings.append(
                f"{node}: no link to {away}, where its neighbours have one ({len(own)} of {len(whole)} leaves)"
            )
    return groups, findings


def _places(
    run: ibnetdiscover.FabricRun, groups: t.Mapping[str, frozenset[str]], titles: t.Mapping[str, str]
) -> dict[str, Place]:
    near: dict[str, list[str]] = {guid: [] for guid in titles}
    for guid, other in sorted(_links(run)):
        if guid in near and other in near:
            near[guid].append(other)
    ranks = _ranks({guid for group in groups.values() for guid in group}, near)
    kinds = sorted(set(groups.values()), key=lambda group: _first(group, titles))
    chains: dict[frozenset[str], list[str]] = {}
    named: Counter[str] = Counter(_title(group, titles) for group in kinds)
    for group in kinds:
        title = _title(group, titles)
        # Two groups may share their first switch: then all of the names tell them apart.
        chains[group] = [title if named[title] == 1 else "-".join(sorted((titles[g] for g in group), key=natural))]
    parted = len(kinds)
    for level in range(1, 1 + max(ranks.values(), default=0)):
        parts = _parts({guid for guid, rank in ranks.items() if rank <= level}, near, kinds)
        count = len({parts[next(iter(group))] for group in kinds})
        if count == parted:
            continue
        parted = count
        for group in kinds:
            part = parts[next(iter(group))]
            tops = [guid for guid, root in parts.items() if root == part and ranks[guid] == level]
            own = min((titles[guid] for guid in tops), key=natural) if tops else f"above-{chains[group][-1]}"
            chains[group].append(own)
    return {node: tuple(reversed(chains[group])) for node, group in groups.items()}


def _first(group: t.Iterable[str], titles: t.Mapping[str, str]) -> list[list[tuple[int, str]]]:
    return sorted(natural(titles[guid]) for guid in group)


def _title(group: t.Iterable[str], titles: t.Mapping[str, str]) -> str:
    return min((titles[guid] for guid in group), key=natural)


def _ranks(leaves: t.Iterable[str], near: t.Mapping[str, t.Sequence[str]]) -> dict[str, int]:
    """Return how many links each switch is away from the nearest one that has nodes."""
    ranks = dict.fromkeys(leaves, 0)
    waiting = deque(ranks)
    while waiting:
        guid = waiting.popleft()
        for other in near[guid]:
            if other not in ranks:
                ranks[other] = ranks[guid] + 1
                waiting.append(other)
    return ranks


def _parts(
    within: t.Collection[str], near: t.Mapping[str, t.Sequence[str]], groups: t.Iterable[frozenset[str]]
) -> dict[str, str]:
    """Return for each switch one that stands for all that it is connected with, also through nodes with several."""
    beside: dict[str, set[str]] = {guid: {other for other in near[guid] if other in within} for guid in within}
    for group in groups:
        for guid in group:
            beside[guid] |= group
    root: dict[str, str] = {}
    for start in sorted(within):
        waiting = [] if start in root else [start]
        while waiting:
            guid = waiting.pop()
            if guid not in root:
                root[guid] = start
                waiting.extend(beside[guid])
    return root
