# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the GPUs of a machine type are, as gpu_info would find them on one. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import (
    GpuPlace,
    NumaNode,
    Topology,
    TopologyError,
    facts,
)


def topology(profile: t.Mapping[str, t.Any]) -> Json:
    """Return the topology of a profile; what it does not tell is left empty, so that nothing is bound to a guess.

    NUMA nodes of these machines are consecutive runs of CPUs of one length (topology files in Azure/azhpc-images).
    """
    vcpus, nodes = profile.get("vcpus"), profile.get("numa_nodes")
    gpus = (profile.get("topology") or {}).get("gpus") or []
    if not vcpus or not nodes or not gpus:
        return facts(Topology())
    if vcpus % nodes:
        raise TopologyError(f"{vcpus} vcpus of a profile cannot be shared out among {nodes} NUMA nodes")
    share = vcpus // nodes
    cpus = {node: f"{node * share}-{(node + 1) * share - 1}" for node in range(nodes)}
    lost = [str(gpu.get("pci_domain")) for gpu in gpus if gpu.get("numa_node") not in cpus]
    if lost:
        raise TopologyError(f"the GPUs {', '.join(lost)} of a profile are on none of its {nodes} NUMA nodes")
    places = [
        GpuPlace(
            index,
            f"0000{gpu['pci_domain']}:00:00.0".upper(),
            gpu["numa_node"],
            cpus[gpu["numa_node"]],
            [gpu["nic"]] if gpu.get("nic") else [],
        )
        for index, gpu in enumerate(sorted(gpus, key=lambda gpu: int(str(gpu["pci_domain"]), 16)))
    ]
    return facts(Topology([NumaNode(node, text) for node, text in cpus.items()], places))
