# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Google Compute Engine by its own command line, with the account that gcloud is logged in with. Private."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.google import google as compute
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.google.google import Gcloud, GcloudError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power import program
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.provider import (
    STOPPED,
    STOPPING,
    CloudInstance,
    CloudNode,
    PowerError,
    Provider,
    Settings,
)


class Google(Provider):
    """One bulk request for all nodes of a kind."""

    SETTINGS: t.ClassVar[dict[str, bool]] = {"project": True, "zone": True, "gcloud": False}
    MACHINE: t.ClassVar[dict[str, bool]] = compute.MACHINE

    def __init__(self, settings: Settings, cluster: str) -> None:
        super().__init__(settings, cluster)
        gcloud = Gcloud(str(settings["project"]), str(settings.get("gcloud") or "gcloud"))
        # Controller and login nodes are the cluster's as well, and no node of Slurm's stands for them.
        self._compute = compute.Instances(gcloud, cluster, str(settings["zone"]), "elastic")

    def create(self, nodes: t.Sequence[CloudNode]) -> dict[str, str]:
        existing = self.instances()
        errors = {node.name: _unfit(existing.get(node.name)) for node in nodes}
        kinds: dict[str, list[CloudNode]] = {}
        for node in nodes:
            if node.name not in existing:
                kinds.setdefault(json.dumps([node.machine, node.user_data], sort_keys=True), []).append(node)
        for group in kinds.values():
            errors.update(self._bulk(group))
        return errors

    def _bulk(self, group: t.Sequence[CloudNode]) -> dict[str, str]:
        names = [node.name for node in group]
        try:
            return self._compute.create(names, group[0].machine, group[0].user_data)
        except GcloudError as exc:
            return dict.fromkeys(names, str(exc))

    def delete(self, names: t.Sequence[str]) -> dict[str, str]:
        try:
            return self._compute.delete(names)
        except GcloudError as exc:
            raise PowerError(str(exc)) from exc

    def instances(self) -> dict[str, CloudInstance]:
        zone = self._compute.zone
        try:
            return {
                name: CloudInstance(compute.state(item), str(item.get("id") or ""), compute.unproven(item, zone))
                for name, item in self._compute.listed().items()
            }
        except GcloudError as exc:
            raise PowerError(str(exc)) from exc


def _unfit(instance: CloudInstance | None) -> str:
    """Return why an existing instance cannot be the new node; sweeps remove an old one, and the node is tried again."""
    if instance is None:
        return ""
    if instance.unproven:
        return f"an instance of this name exists, and {instance.unproven}"
    return f"its old instance is {instance.state}" if instance.state in (STOPPED, STOPPING) else ""


def main(argv: t.Sequence[str]) -> int:
    """Run the program with this cloud."""
    return program.main(argv, Google)
