# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What in an inventory would end in a broken cluster, found before anything is changed. Reads profiles; private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight import (
    accounting,
    gres,
    hosts,
    machine,
    partitions,
    slurm,
    storage,
)
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight.inputs import check_shapes

Inputs = t.Mapping[str, t.Any]
# What has to hold for a cluster that is only measured as well.
_OF_ANY_SLURM = (hosts.cluster, hosts.login, accounting.prover)
_TOPICS = (hosts, machine, partitions, slurm, gres, accounting, storage)


def findings(inputs: Inputs, specs: t.Mapping[str, t.Any] | None = None) -> list[str]:
    """Every problem at once; each text names the variable, its value, and what would be accepted.

    ``specs`` are the roles' argument specifications. What has the wrong shape is reported and not looked at further.
    """
    problems, sound = check_shapes(inputs, specs or {})
    checks = [check for topic in _TOPICS for check in topic.CHECKS]
    if sound.get("cluster_slurm") == machine.EXISTING:
        checks = [*machine.CHECKS, *_OF_ANY_SLURM]
    if sound.get("cluster_slurm") == machine.CYCLECLOUD:
        checks = list(machine.OF_MADE_MACHINES)  # it has checked what it made them from
    return problems + [text for check in checks for text in check(sound)]
