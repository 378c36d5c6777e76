# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters for jobs; documented in files of their names beside this one."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.jobs import ddp, training
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import versions
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import CpuListError


def profile_topology(profile: object) -> dict[str, t.Any]:
    """Return where the GPUs of a machine type are."""
    if not isinstance(profile, t.Mapping):
        raise AnsibleFilterError(f"profile_topology: a profile is a dictionary, not {profile!r}")
    try:
        return training.topology(profile)
    except (CpuListError, KeyError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"profile_topology: {exc}") from exc


def ddp_findings(nodes: object, processes: int, rendezvous: str, slurm: str = "refuse") -> list[str]:
    """Say what keeps nodes from training together."""
    if not isinstance(nodes, t.Mapping):
        raise AnsibleFilterError(f"ddp_findings: what nodes say is a dictionary by name, not {nodes!r}")
    try:
        return ddp.findings(nodes, int(processes), rendezvous, slurm)
    except (KeyError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"ddp_findings: {exc!r} in what a node says") from exc


def stack_misfits(packages: object, torch: str, python: str, builds: t.Mapping[str, str]) -> list[str]:
    """Say which packages do not work with a PyTorch and a Python."""
    if not isinstance(packages, t.Sequence) or isinstance(packages, str):
        raise AnsibleFilterError(f"stack_misfits: packages are a list of dictionaries, not {packages!r}")
    try:
        return versions.misfits(packages, str(torch), str(python), builds)
    except (KeyError, TypeError, AttributeError, ValueError) as exc:
        raise AnsibleFilterError(f"stack_misfits: {exc}") from exc


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"ddp_findings": ddp_findings, "profile_topology": profile_topology, "stack_misfits": stack_misfits}
