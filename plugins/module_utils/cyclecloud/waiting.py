# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait for a cluster of CycleCloud: for its nodes, for Slurm on the scheduler, for its end. Private."""

from __future__ import annotations

import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import ready
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import Cli, CliError, Json, told
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.here import Server
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.notes import folder

Seen = t.TypeVar("Seen")


class Waiter:
    """``wait`` has seconds for ready and slurm, and poll between two looks."""

    def __init__(self, server: Server, name: str, wait: t.Mapping[str, t.Any]) -> None:
        self.server, self.name = server, name
        self.limits = {
            "ready": 2400.0,
            "slurm": 600.0,
            "poll": 10.0,
            **{key: float(value) for key, value in wait.items()},
        }

    def nodes(self, login_wanted: int, grace: float = 0) -> ready.Look:
        """Wait until scheduler and login nodes are Ready; one that failed ends it, after a grace for a retry."""
        begin = time.monotonic()
        end = begin + self.limits["ready"]
        while True:
            seen = ready.look(self.server.status(self.name), login_wanted)
            if seen.failed and time.monotonic() >= begin + grace:
                raise CliError(
                    f"{'; '.join(seen.failed)}. Look at the node's log in CycleCloud and correct the settings; the next"
                    " run tries the node again"
                )
            if not seen.waiting:
                return seen
            if time.monotonic() > end:
                raise CliError(
                    f"after {self.limits['ready']:g} s {'; '.join(seen.waiting)}. Look at its messages in CycleCloud:"
                    " quota, capacity, an image that does not boot, or port 9443 of the server closed for the subnet"
                )
            time.sleep(self.limits["poll"])

    def gone(self, limit: float) -> None:
        """Wait until a terminated cluster has no node left."""
        end = time.monotonic() + limit
        while True:
            left = ready.left(self.server.status(self.name)) if self.server.exists(self.name) else []
            if not left:
                return
            if time.monotonic() > end:
                raise CliError(
                    f"{limit:g} s after it was terminated {'; '.join(left[:10])}: run this again, it goes on here"
                )
            time.sleep(self.limits["poll"])

    def deleted(self, limit: float) -> None:
        """Wait until the server does not know the cluster any more: that its command ended well does not say so."""
        end = time.monotonic() + limit
        while self.server.exists(self.name):
            if time.monotonic() > end:
                left = ready.left(self.server.status(self.name))
                raise CliError(
                    f"{limit:g} s after 'delete_cluster {self.name}' ended without an error CycleCloud has the cluster"
                    f" still{', and ' + '; '.join(left[:10]) if left else ''}: look at its messages in CycleCloud, then"
                    " run this again"
                )
            time.sleep(self.limits["poll"])


class Scheduler:
    """The scheduler by SSH from the CycleCloud VM, with the key that CycleCloud made for its nodes."""

    def __init__(self, cli: Cli, want: Json, node: Json) -> None:
        self.node, self.want = node, want
        self.known = Path(want["state_dir"]) / "known_hosts"
        key = Path(cli.params["home"]) / ".ssh" / "cyclecloud.pem"
        # One file per node: an address that comes again belongs to another machine.
        hosts = self.known / str(node["id"] or node["name"])
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": "15",
            "IdentitiesOnly": "yes",
            "StrictHostKeyChecking": "accept-new",
            "UserKnownHostsFile": str(hosts),
        }
        flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        self.argv = [want["ssh"], "-i", str(key), *flags, f"cyclecloud@{ready.address(node)}", "--"]

    def run(self, *words: str, timeout: float = 300) -> _command.Outcome:
        folder(self.known)
        return _command.run([*self.argv, *words], timeout)

    def await_slurm(self, limit: float, poll: float) -> None:
        """Wait until slurmctld answers; it starts after the node is Ready."""
        end = time.monotonic() + limit
        while True:
            done = self.run("scontrol", "ping", timeout=60)
            if not done.problem and " is UP" in done.out:
                return
            if time.monotonic() > end:
                raise CliError(
                    f"slurmctld on {self.node['name']} ({ready.address(self.node)}) does not answer after {limit:g} s:"
                    f" {told(done)}. Port 22 from the server to the subnet must be open; see"
                    " 'systemctl status slurmctld' there"
                )
            time.sleep(poll)

    def scale(self) -> None:
        """Have Slurm know changed node arrays: azslurm writes azure.conf and gres.conf anew and restarts slurmctld."""
        done = self.run("sudo", "-i", "azslurm", "scale", timeout=600)
        if done.problem:
            raise CliError(
                f"'azslurm scale' failed on {self.node['name']} ({ready.address(self.node)}): {told(done)}. Slurm does"
                " not know the changed node arrays yet; the next run tries again"
            )
