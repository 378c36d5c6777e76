# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documented REST routes, asked on the server itself with the login of its command line. Private."""

from __future__ import annotations

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import rest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import Json, Login


class Server:
    """What the documented REST routes tell, with the login of the command line."""

    def __init__(self, login: Login, ca: str, timeout: float = 60) -> None:
        self.client = rest.Client(login.url, login.user, login.password, ca or None, login.verify, timeout)

    def exists(self, cluster: str) -> bool:
        """Of all documented routes this one is said to answer 404 for a cluster that is not there."""
        try:
            self.client.get(f"/clusters/{rest.quoted(cluster)}/nodes")
        except rest.CycleCloudError as exc:
            if exc.status == 404:
                return False
            raise
        return True

    def status(self, cluster: str) -> Json:
        return self.client.status(cluster)

    def started(self, cluster: str) -> bool:
        return str(self.status(cluster).get("targetState")).lower() == "started"
