# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cloud has to offer so that Slurm can create nodes in it, and the commands that Slurm is given."""

from __future__ import annotations

import abc
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError

# What a cloud has to offer so that Slurm can create and remove nodes in it.


# What an instance is doing, in any cloud's words.
STARTING, RUNNING, STOPPING, STOPPED = "starting", "running", "stopping", "stopped"

Settings = t.Mapping[str, t.Any]
Run = t.Callable[..., _process.Outcome]


class PowerError(ValueError):
    """The cloud or Slurm does not do what was asked; the text is fit for the user."""


class CloudNode(t.NamedTuple):
    """A node to create: what machine it is, and what it runs when it boots (a path of this host)."""

    name: str
    machine: Settings
    user_data: str


class Provider(abc.ABC):
    """One cloud. Every call is safe to repeat: what is there already, or gone already, is no error.

    A PowerError means that nothing is known of any node of the call. An answer names every node that was asked for:
    empty is done, a text says what the cloud said.
    """

    # Names of settings that the provider knows, each with whether it has to be there.
    SETTINGS: t.ClassVar[dict[str, bool]] = {}
    # Names of what a group of nodes says about its machines, likewise.
    MACHINE: t.ClassVar[dict[str, bool]] = {}

    def __init__(self, settings: Settings, cluster: str) -> None:
        self.settings = settings
        self.cluster = cluster

    @abc.abstractmethod
    def create(self, nodes: t.Sequence[CloudNode]) -> dict[str, str]:
        """Ask for instances, marked as this cluster's; do not wait until they have booted."""

    @abc.abstractmethod
    def delete(self, names: t.Sequence[str]) -> dict[str, str]:
        """Remove instances of this cluster; one that is not this cluster's is refused."""

    @abc.abstractmethod
    def instances(self) -> dict[str, str]:
        """Return what each instance of this cluster is doing."""


# The commands that the power programs give Slurm.


_TIMEOUT = 60.0


class PowerSlurm:
    """Slurm's own view of its nodes, and the changes that we may make to it."""

    def __init__(self, run: Run = _process.run) -> None:
        self._run = run

    def _ask(self, argv: t.Sequence[str]) -> str:
        done = self._run(argv, _TIMEOUT, environment={"SLURM_TIME_FORMAT": TIME_FORMAT})
        if done.problem:
            raise PowerError(f"{' '.join(argv)} failed: {done.problem}")
        return done.out

    def nodes(self) -> list[state.Record]:
        """Read all nodes, also those that are switched off."""
        argv = ["scontrol", "show", "node", "-a", "-o"]
        try:
            found = state.nodes_from_text(self._ask(argv))
        except (SlurmError, KeyError) as exc:
            raise PowerError(f"{' '.join(argv)} printed what cannot be read: {exc}") from exc
        if not found:
            raise PowerError(f"{' '.join(argv)} named no node")
        return found

    def down(self, names: t.Sequence[str], reason: str) -> None:
        """Take nodes out of service: their jobs are requeued, and they get no others."""
        self.update(names, "state=DOWN", f"reason={reason}")

    def power_down(self, names: t.Sequence[str]) -> None:
        """Have Slurm count nodes as switched off; it calls its SuspendProgram for them."""
        self.update(names, "state=POWER_DOWN")

    def resume(self, names: t.Sequence[str]) -> None:
        """Give nodes back to the scheduler."""
        self.update(names, "state=RESUME")

    def update(self, names: t.Sequence[str], *changes: str) -> None:
        """Change nodes; none is no change."""
        if names:
            self._ask(["scontrol", "update", f"nodename={compress(names)}", *changes])
