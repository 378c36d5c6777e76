# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cloud has to offer so that Slurm can create and remove nodes in it. Private.

One file in `providers` is one cloud: a class that is a Provider, and `main`, which hands it to `program.main`.
"""

from __future__ import annotations

import abc
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command

# What an instance is doing, in any cloud's words.
STARTING, RUNNING, STOPPING, STOPPED = "starting", "running", "stopping", "stopped"

Settings = t.Mapping[str, t.Any]
Run = t.Callable[..., _command.Outcome]


class PowerError(ValueError):
    """The cloud or Slurm does not do what was asked; the text is fit for the user."""


class Node(t.NamedTuple):
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
    def create(self, nodes: t.Sequence[Node]) -> dict[str, str]:
        """Ask for instances, marked as this cluster's; do not wait until they have booted."""

    @abc.abstractmethod
    def delete(self, names: t.Sequence[str]) -> dict[str, str]:
        """Remove instances of this cluster; one that is not this cluster's is refused."""

    @abc.abstractmethod
    def instances(self) -> dict[str, str]:
        """Return what each instance of this cluster is doing."""
