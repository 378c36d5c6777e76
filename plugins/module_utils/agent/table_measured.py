# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's checks that are also modules: what they cost and where they run. Private, stdlib only."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import SUITES, Check

_GPU = (
    "gpu_count gpu_model gpu_ecc gpu_remap gpu_pcie gpu_nvlink gpu_throttle gpu_temperature gpu_topology gpu_pinning"
).split()

_FULL = ("full",)

CHECKS: dict[str, Check] = {
    "latches": Check("checks_latches:latches", 0.001, 1, SUITES),
    "gpu_devices": Check("checks_gpu:devices", 0.01, 1, ("prolog", "epilog")),
    "infiniband_ports": Check("checks_fabric:ports", 0.05, 5, SUITES),
    "cpu_count": Check("checks_node:cpu_count", 0.01, 5, ("boot", "periodic", "full")),
    "memory": Check("checks_node:memory", 0.01, 5, ("boot", "periodic", "full")),
    "disk_space": Check("checks_node:disk_space", 0.05, 8, ("boot", "periodic", "full")),
    "munge_daemon": Check("checks_node:munge", 0.05, 8, ("boot", "full"), ("munge",)),
    "nvme_scratch": Check("checks_measure:scratch", 0.5, 20, ("boot", "full"), needs_root=True),
    "gpu": Check("checks_gpu:inventory", 2, 24, ("boot", "epilog", "periodic", "full"), _GPU),
    "gpu_bandwidth": Check("checks_measure:gpu_bandwidth", 20, 150, _FULL),
    "gpu_p2p": Check("gpu_p2p:p2p", 25, 120, _FULL),
    "nccl_tests": Check("checks_measure:nccl", 30, 300, _FULL),
    "nccl_loopback": Check("checks_measure:nccl_loopback", 60, 300, _FULL),
    "infiniband_bandwidth": Check("checks_measure:infiniband_bandwidth", 61, 300, _FULL),
    "storage_bandwidth": Check("checks_measure:storage_bandwidth", 62, 150, _FULL),
    "hpl": Check("checks_measure:hpl", 300, 960, _FULL),
}
