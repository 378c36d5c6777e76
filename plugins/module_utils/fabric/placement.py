# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a cloud or an inventory says that nodes are. Pure, private."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.fabric.model import (
    FabricError,
    Place,
    Placement,
    without_common,
)

Record = t.Mapping[str, t.Any]


def hosts(given: Record) -> Placement:
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
    said = (
        f"Google says of {', '.join(sorted(findings))} not where they are: physicalHostTopology is given for some"
        " machine types and for compact placement only"
    )
    return Placement(without_common(places), [said] if findings else [])


def aws(text: str, names: t.Mapping[str, str]) -> Placement:
    """Read ``aws ec2 describe-instance-topology``: network nodes from the top of the network down to the instance's."""
    found = {
        str(item.get("InstanceId")): tuple(str(node) for node in item.get("NetworkNodes") or [])
        for item in _records(text, "Instances", "aws ec2 describe-instance-topology")
    }
    places = {names.get(instance, instance): place for instance, place in found.items() if place}
    return Placement(without_common(places), [])


def _records(text: str, key: str, command: str) -> list[Record]:
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
