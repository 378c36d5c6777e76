# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the node agent measures of a node's health: unit, meaning and labels. Private.

The agent has limits of its own for these (module_utils/agent/limits.py, with sources); an expectation replaces them.
"""

from __future__ import annotations

import typing as t

Named = t.Tuple[str, str, str]

_ECC: dict[str, Named] = {
    f"{memory}_{kind}_{life}": ("errors", f"{kind} errors of {memory.upper()}, {life} counters", "gpu")
    for memory in ("sram", "dram")
    for kind in ("corrected", "uncorrected")
    for life in ("volatile", "aggregate")
}

AGENT: dict[str, dict[str, Named]] = {
    "dcgm_health": {
        "failures": ("incidents", "failures that DCGM's health watches report", ""),
        "warnings": ("incidents", "warnings that DCGM's health watches report", ""),
    },
    "dcgm_diag": {
        "failed": ("tests", "tests of dcgmi diag that failed", ""),
        "skipped": ("tests", "tests of dcgmi diag that were skipped or not run", ""),
    },
    "gpu_memory_errors": {
        **_ECC,
        "sram_threshold_exceeded": ("flags", "1 if the GPU counts too many errors of SRAM", "gpu"),
        "retirement_pending": ("flags", "1 if pages wait for a reset, before Ampere", "gpu"),
    },
    "gpu_persistence": {"persistence": ("flags", "1 if persistence mode is on", "gpu")},
    "gpu_clock_limits": {
        "graphics_max": ("MHz", "highest graphics clock that the GPU offers", "gpu"),
        "memory_max": ("MHz", "highest memory clock that the GPU offers", "gpu"),
    },
    "gpu_clock_lock": {
        "graphics": ("MHz", "graphics clock, where gpu_clocks set one that can be told", "gpu"),
        "memory": ("MHz", "memory clock, where gpu_clocks set one that can be told", "gpu"),
    },
    "gpu_idle": {
        "memory_used": ("MiB", "memory in use while no job has the node", "gpu"),
        "processes": ("processes", "processes on GPUs while no job has the node", ""),
    },
    "gpu_nvlink_errors": {
        "errors": ("errors", "errors of all links but failed recoveries", "gpu"),
        "recovery_failed": ("events", "links that did not recover", "gpu"),
        "effective_ber": ("errors/bit", "highest effective bit error rate", "gpu"),
        "errors_per_hour": ("errors/h", "errors since the last look, per hour", "gpu"),
    },
    "infiniband_flaps": {"link_downs": ("events", "times that the link went down in 3 h", "nic")},
    "infiniband_errors": {
        name: ("errors", f"growth of {name} within a day", "nic")
        for name in ("symbol_error", "link_error_recovery", "port_rcv_errors", "port_xmit_discards")
    },
    "filesystems": {
        "free": ("%", "free space", "path"),
        "free_inodes": ("inodes", "inodes that are free", "path"),
    },
    "nvme_disks": {"disks": ("disks", "disks of the profile's controller, or size", "")},
    "scratch_array": {"disks": ("disks", "disks that work in the array of scratch", "path")},
    "scratch_probe": {"seconds": ("s", "time to write 1 MiB to scratch and read it back", "")},
    "shared_directory": {"seconds": ("s", "time to write to the shared directory and read it back", "")},
    "cpus_online": {
        "online": ("cpus", "CPUs that the kernel has online", ""),
        "offline": ("cpus", "CPUs that are offline", ""),
    },
    "memory_errors": {
        "uncorrected": ("errors", "uncorrected errors of the host's memory (EDAC)", ""),
        "corrected": ("errors", "corrected errors of the host's memory (EDAC)", ""),
        "poisoned": ("bytes", "memory that the kernel took out of use", ""),
    },
    "swap": {"swap": ("bytes", "swap that is on", "")},
    "leftover_processes": {
        "processes": ("processes", "processes of users without a job on the node", ""),
        "uninterruptible": ("processes", "those of them that nothing can end", ""),
    },
}
