# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of role azure_infra; documented in the YAML files beside this one."""

from __future__ import annotations

import datetime
import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client, infra, teardown


def azure_infra_plan(inputs: t.Any) -> dict[str, t.Any]:
    """Return the plan of a cluster's resources, with what is wrong with the inputs and warnings."""
    now = datetime.datetime.now(datetime.timezone.utc)
    refused = infra.refusals(_checked(inputs), now)
    warnings = [] if refused else infra.warnings(inputs, now)
    return {**infra.plan(inputs), "refused": refused, "warnings": warnings}


def azure_infra_roles(inputs: t.Any, principal: t.Any, locker: t.Any) -> list[dict[str, t.Any]]:
    """Return the role assignments that the cluster needs."""
    return infra.roles(_checked(inputs), str(principal or ""), str(locker or ""))


def azure_infra_rules(inputs: t.Any, observed: t.Any) -> dict[str, list[str]]:
    """Return which rules of the security groups are stale, which of others open something, which stand in the way."""
    return infra.rule_review(_checked(inputs), _checked(observed))


def azure_infra_bastion(inputs: t.Any, observed: t.Any, subnet: t.Any = None) -> dict[str, t.Any]:
    """Return what is wrong with a Bastion, which subnet of it to read, and the addresses it connects from."""
    judged = infra.bastion(_checked(inputs), _checked(observed))._asdict()
    return {**judged, "sources": infra.bastion_sources(_checked(subnet or {}))}


def azure_infra_outbound(inputs: t.Any, observed: t.Any, tables: t.Any = None) -> dict[str, t.Any]:
    """Return which route tables to read, and which subnets of others have no way out."""
    checked = _checked(inputs)
    if not checked["existing_subnet_id"]:
        return infra.WaysOut({}, [], [])._asdict()
    there = _checked(observed)
    subnets = {name: there.get(name) for name in ("server_subnet", "compute_subnet")}
    # The machine's public address is its own way out, and nobody else's.
    public = ["server_subnet"] if checked["public_address"] else []
    confirmed = bool(checked.get("outbound_confirmed"))
    return infra.ways_out(subnets, _checked(tables or {}), public, confirmed)._asdict()


def azure_infra_expiry(tags: t.Any, wanted: t.Any, again: t.Any = False) -> dict[str, t.Any]:
    """Return the tags that set a group's expiry, and a message where another day stays."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return teardown.provisioned(_checked(tags or {}), str(wanted or ""), bool(again), now)._asdict()


def azure_failure(text: t.Any) -> str:
    """Return an error of Azure with advice."""
    return client.explain(str(text))


def _checked(inputs: t.Any) -> t.Mapping[str, t.Any]:
    if not isinstance(inputs, t.Mapping):
        raise AnsibleFilterError("takes a dictionary of role azure_infra")
    return inputs


class FilterModule:
    """What this file offers to templates."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {
            "azure_failure": azure_failure,
            "azure_infra_bastion": azure_infra_bastion,
            "azure_infra_expiry": azure_infra_expiry,
            "azure_infra_outbound": azure_infra_outbound,
            "azure_infra_plan": azure_infra_plan,
            "azure_infra_roles": azure_infra_roles,
            "azure_infra_rules": azure_infra_rules,
        }
