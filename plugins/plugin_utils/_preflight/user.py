# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is the cluster's user one user on all machines, or can be made so? No I/O; private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _cluster_user
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight.wording import say

Inputs = t.Mapping[str, t.Any]


def one_number(inputs: Inputs) -> list[str]:
    """Machines that told nothing of their users are passed over."""
    name, wanted = str(inputs.get("cluster_user") or ""), str(inputs.get("cluster_user_uid") or 0)
    if not wanted.isdecimal():
        return [say("cluster_user_uid", wanted, "not the number of a user", "a whole number, or none")]
    machines = {host: known["told"] for host, known in (inputs.get("hosts") or {}).items() if known.get("told")}
    if not name or not machines:
        return []
    label = "cluster_user_uid" if int(wanted) else "cluster_user"
    found = _cluster_user.problems(name, machines, int(wanted))
    return [say(label if value != name else "cluster_user", value, why, accepted) for value, why, accepted in found]


CHECKS = (one_number,)
