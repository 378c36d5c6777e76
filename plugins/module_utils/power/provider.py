# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of a cloud in which Slurm creates nodes, and the commands of Slurm that the power programs run."""

from __future__ import annotations

import abc
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError

# The interface of a cloud in which Slurm creates and removes nodes.


# The state of an instance, the same words for every cloud.
STARTING, RUNNING, STOPPING, STOPPED = "starting", "running", "stopping", "stopped"

Settings = t.Mapping[str, t.Any]
Run = t.Callable[..., _process.Outcome]


class PowerError(ValueError):
    """The cloud or Slurm refused a request, or failed; the text is fit for the user."""


class CloudNode(t.NamedTuple):
    """A node to create: its machine, and the user-data that it boots with (a path of this host)."""

    name: str
    machine: Settings
    user_data: str


class CloudInstance(t.NamedTuple):
    """An instance with the cluster's mark: its state, what tells it from a later one of its name, if the cloud says.

    ``unproven`` says why the mark may be somebody's copy. Such an instance is counted as its node's, and never deleted.
    """

    state: str
    identity: str = ""
    unproven: str = ""


class Provider(abc.ABC):
    """One cloud. Every call is safe to repeat: what is there already, or gone already, is no error.

    A PowerError means that nothing is known of any node of the call. An answer has every node of the request: an empty
    text is done, any other is the error of the cloud.
    """

    # Names of settings that the provider knows, each with whether it has to be there.
    SETTINGS: t.ClassVar[dict[str, bool]] = {}
    # Names of the settings of a group's machines, likewise.
    MACHINE: t.ClassVar[dict[str, bool]] = {}

    def __init__(self, settings: Settings, cluster: str) -> None:
        self.settings = settings
        self.cluster = cluster

    @abc.abstractmethod
    def create(self, nodes: t.Sequence[CloudNode]) -> dict[str, str]:
        """Request instances, marked as this cluster's; do not wait until they have booted."""

    @abc.abstractmethod
    def delete(self, names: t.Sequence[str]) -> dict[str, str]:
        """Remove instances of this cluster; one that is not this cluster's is refused."""

    @abc.abstractmethod
    def instances(self) -> dict[str, CloudInstance]:
        """Return each instance with the mark of this cluster."""


# The commands of Slurm that the power programs run.


_TIMEOUT = 60.0


class PowerSlurm:
    """Slurm's own view of its nodes, and the changes that we may make to it."""

    def __init__(self, run: Run = _process.run) -> None:
        self._run = run

    def _output(self, argv: t.Sequence[str]) -> str:
        done = self._run(argv, _TIMEOUT, environment={"SLURM_TIME_FORMAT": TIME_FORMAT})
        if done.problem:
            raise PowerError(f"{' '.join(argv)} failed: {done.problem}")
        return done.out

    def nodes(self) -> list[state.Record]:
        """Return all nodes, also those that are switched off."""
        argv = ["scontrol", "show", "node", "-a", "-o"]
        try:
            nodes = state.nodes_from_text(self._output(argv))
        except (SlurmError, KeyError) as exc:
            raise PowerError(f"{' '.join(argv)} printed what cannot be read: {exc}") from exc
        if not nodes:
            raise PowerError(f"{' '.join(argv)} named no node")
        return nodes

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
            self._output(["scontrol", "update", f"nodename={compress(names)}", *changes])
