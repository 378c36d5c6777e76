# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of the role node_repair; documented in the YAML files beside this one."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _node_repair as repair


def _guard(name: str, work: t.Callable[[], t.Any]) -> t.Any:
    try:
        return work()
    except (KeyError, TypeError, AttributeError, HostlistError) as exc:
        raise AnsibleFilterError(f"{name} wants nodes of slurm_info and hostlists: {exc!r}") from exc


def node_repair_refusals(nodes: t.Any, partners: str = "") -> list[str]:
    """Say why nodes cannot be repaired."""
    return _guard("node_repair_refusals", lambda: repair.refusals(list(nodes), repair.names(partners)))


def node_repair_claims(nodes: t.Any) -> list[dict[str, str]]:
    """Return drains that Slurm made itself, with reasons of ours."""
    return _guard("node_repair_claims", lambda: repair.claims(list(nodes)))


def node_repair_settle(
    before: t.Any, now: t.Any, certificate: t.Any = None, partners: str = "", held: t.Any = None
) -> dict[str, t.Any]:
    """Return what is proved and what is to be drained again."""
    name = "node_repair_settle"
    options = {"certificate": certificate or {}, "held": held or {}}
    return _guard(name, lambda: repair.settle(list(before), list(now), partners=repair.names(partners), **options))


class FilterModule:
    """What this file offers to templates."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {
            "node_repair_claims": node_repair_claims,
            "node_repair_refusals": node_repair_refusals,
            "node_repair_settle": node_repair_settle,
        }
