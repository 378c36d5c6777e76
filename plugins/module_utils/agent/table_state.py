# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's checks of a node's own state: what they cost and where they run. Private, stdlib only.

Nothing here asks Slurm. What runs in a prolog reads local files and answers in milliseconds.
"""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import SUITES, Check

_ALWAYS = ("boot", "periodic", "full")
_ROOT = ("boot", "epilog", "periodic")
_JOB_ENDS = ("boot", "epilog", "periodic", "full")

CHECKS: dict[str, Check] = {
    "profile": Check("checks_machine:profile", 0.001, 1, _ALWAYS),
    "filesystems": Check("checks_files:filesystems", 0.002, 3, SUITES),
    "nvme_disks": Check("checks_files:nvme_disks", 0.003, 2, SUITES),
    "scratch_array": Check("checks_files:scratch_array", 0.003, 2, SUITES),
    "cpus_online": Check("checks_machine:cpus_online", 0.001, 2, _ALWAYS),
    "memory_errors": Check("checks_machine:memory_errors", 0.002, 2, _JOB_ENDS),
    "swap": Check("checks_machine:swap", 0.001, 2, _ALWAYS),
    "gpu_xid": Check("checks_kernel:xid", 0.03, 2, ("boot", "prolog", "epilog", "periodic"), needs_root=True),
    "infiniband_flaps": Check("checks_links:flaps", 0.02, 3, _JOB_ENDS),
    "infiniband_errors": Check("checks_links:errors", 0.02, 3, _JOB_ENDS),
    "leftover_processes": Check("checks_processes:leftover", 0.05, 3, ("epilog", "periodic"), needs_root=True),
    "scratch_probe": Check("checks_files:scratch_probe", 0.05, 6, _JOB_ENDS),
    "munge": Check("checks_shared:munge", 0.06, 6, ("periodic",), needs_root=True),
    "clock_skew": Check("checks_shared:clock_skew", 0.06, 6, ("periodic",), needs_root=True),
    "shared_directory": Check("checks_shared:shared_directory", 0.07, 6, ("boot", "periodic"), needs_root=True),
    "gpu_memory_errors": Check("checks_gpu_state:memory_errors", 2.1, 12, _JOB_ENDS),
    "gpu_persistence": Check("checks_gpu_state:persistence", 2.1, 12, _ALWAYS),
    "gpu_clock_limits": Check("checks_gpu_state:clock_limits", 2.1, 12, _ALWAYS),
    # nvidia-smi is asked once for all of these, whichever comes first.
    "gpu_clock_lock": Check("checks_clocks:lock", 1.5, 12, _ALWAYS, needs_root=True),
    "gpu_idle": Check("checks_gpu_state:idle", 2.2, 12, _ROOT),
    "gpu_nvlink_errors": Check("checks_nvlink:errors", 2.5, 8, _ALWAYS),
}
