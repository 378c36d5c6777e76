# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of the module infiniband_info, run by the agent. Private, stdlib only."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import read

TIMEOUT = 3.0


def ports(context: Context) -> list[Json]:
    """Read sysfs; ibstat only where that knows no port, and never in a prolog."""
    config = context.config
    fabric = config.profile.get("infiniband") or {}
    params = {
        "name": config.node,
        "ports": int(fabric.get("count") or 0),
        "devices": list(fabric.get("devices") or []),
        "ibstat": None,
        "sysfs": config.sysfs,
        "timeout": 0.5 if context.suite == "prolog" else TIMEOUT,
        "expect": config.expect,
        "run": context.run,
        "profile": config.profile.get("profile"),
    }
    return context.adopt(read.perform(params)["checks"])
