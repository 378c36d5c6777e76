# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which emulated tools there are, and the module of each."""

from __future__ import annotations

NCCL = "all_gather alltoall all_reduce broadcast gather hypercube reduce reduce_scatter scatter sendrecv".split()

TOOLS = {
    "nvidia-smi": "nvidia_smi",
    "nvbandwidth": "nvbandwidth",
    "bandwidthTest": "bandwidth_test",
    "dcgmi": "dcgmi",
    "xhpl": "hpl",
    "ibstat": "infiniband",
    "ib_write_bw": "perftest",
    "ib_read_bw": "perftest",
    "ib_send_bw": "perftest",
    "fio": "fio",
    "ldd": "ldd",
    "numactl": "binding",
    "taskset": "binding",
    **{f"{name}_perf": "nccl" for name in NCCL},
}

# Newer releases of the CUDA samples do not have the one, and DCGM is not on every machine.
OPTIONAL = ("bandwidthTest", "dcgmi")
# On a shared directory these would be seen by every machine of a cluster, also by those without GPUs.
ON_LOGIN = ("ldd", "nvbandwidth", "xhpl", *(f"{name}_perf" for name in NCCL))
