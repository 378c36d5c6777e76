# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances of Google Compute Engine, created in bulk. Private to this collection."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.google.gcloud import Gcloud, GcloudError

Record = t.Mapping[str, t.Any]
LABEL = "hpcai-cluster"
KIND = "hpcai-kind"
# What a machine may say, each with whether it has to.
MACHINE = {
    "machine_type": True,
    "image": False,
    "image_family": False,
    "image_project": False,
    "boot_disk_gb": False,
    "boot_disk_type": False,
    "subnet": False,
    "address": False,
    "service_account": False,
    "scopes": False,
    "tags": False,
    "labels": False,
    "metadata": False,
    "accelerator": False,
    "spot": False,
}
STATES = {
    "PROVISIONING": "starting",
    "STAGING": "starting",
    "REPAIRING": "starting",
    "RUNNING": "running",
    "STOPPING": "stopping",
    "SUSPENDING": "stopping",
}
_WORDS = ("compute", "instances")
_AT_ONCE = 500  # names have to fit on a command line


def faults(machine: Record) -> list[str]:
    """Say all that is wrong with a machine."""
    found = [f"{name} is missing" for name, needed in MACHINE.items() if needed and not machine.get(name)]
    found += [f"{name} is unknown" for name in sorted(set(machine) - set(MACHINE))]
    if bool(machine.get("image")) == bool(machine.get("image_family")):
        found.append("either image or image_family is needed")
    accelerator = machine.get("accelerator")
    if accelerator and (not isinstance(accelerator, dict) or set(accelerator) != {"type", "count"}):
        found.append("accelerator is no dictionary of type and count")
    return found


def flags(machine: Record, cluster: str, zone: str, script: str = "", kind: str = "") -> dict[str, t.Any]:
    """Return the flags of ``gcloud compute instances bulk create`` but the names."""
    spot = bool(machine.get("spot"))
    return {
        "zone": zone,
        "machine-type": machine["machine_type"],
        "image": machine.get("image"),
        "image-family": machine.get("image_family"),
        "image-project": machine.get("image_project"),
        "boot-disk-size": f"{machine['boot_disk_gb']}GB" if machine.get("boot_disk_gb") else "",
        "boot-disk-type": machine.get("boot_disk_type"),
        "subnet": machine.get("subnet"),
        "no-address": not machine.get("address"),
        "service-account": machine.get("service_account"),
        "scopes": machine.get("scopes"),
        "tags": machine.get("tags"),
        "labels": {**(machine.get("labels") or {}), LABEL: cluster, **({KIND: kind} if kind else {})},
        "metadata": machine.get("metadata"),
        "metadata-from-file": {"startup-script": script} if script else {},
        "accelerator": machine.get("accelerator"),
        # A machine with GPUs cannot be moved while it runs.
        "on-host-maintenance": "TERMINATE" if machine.get("accelerator") or spot else "",
        "provisioning-model": "SPOT" if spot else "",
        "instance-termination-action": "DELETE" if spot else "",
    }


class Instances:
    """The instances of one cluster in one zone; with a kind only those that were created as such."""

    def __init__(self, gcloud: Gcloud, cluster: str, zone: str, kind: str = "") -> None:
        self.gcloud, self.cluster, self.zone, self.kind = gcloud, cluster, zone, kind

    def listed(self) -> dict[str, Record]:
        """Every instance that carries the cluster's label, and the kind's, as Google describes it."""
        wanted = {"filter": f"labels.{LABEL}={self.cluster}", "zones": self.zone}
        found = self.gcloud.ask([*_WORDS, "list"], wanted) or []
        return {item["name"]: item for item in found if not self.kind or _kind(item) == self.kind}

    def create(self, names: t.Sequence[str], machine: Record, script: str = "") -> dict[str, str]:
        """Create instances in bulk; what Google has no room for does not keep the others from coming."""
        wrong, why = faults(machine), ""
        if wrong:
            raise GcloudError("; ".join(wrong))
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            wanted = flags(machine, self.cluster, self.zone, script, self.kind)
            bulk = {"predefined-names": some, "min-count": "1", **wanted}
            try:
                self.gcloud.ask([*_WORDS, "bulk", "create"], bulk)
            except GcloudError as exc:
                why = str(exc)
        # Whatever the command said: only the list tells what there is now.
        there = self.listed()
        return {name: "" if name in there else why or "Google made fewer instances than asked" for name in names}

    def delete(self, names: t.Sequence[str]) -> dict[str, str]:
        """Delete instances that carry the cluster's label; one that does not is as good as gone."""
        there, why = self.listed(), ""
        mine = [name for name in names if name in there]
        for start in range(0, len(mine), _AT_ONCE):
            try:
                self.gcloud.ask([*_WORDS, "delete", *mine[start : start + _AT_ONCE]], {"zone": self.zone})
            except GcloudError as exc:
                why = str(exc)
        left = self.listed() if why else {}
        return {name: why if name in left else "" for name in names}


def _kind(item: Record) -> str:
    return str((item.get("labels") or {}).get(KIND) or "")


def state(item: Record) -> str:
    """What an instance does, in the words of `power.provider`."""
    return STATES.get(str(item.get("status")), "stopped")


def address(item: Record, public: bool) -> str:
    """The address of the first interface."""
    first: Record = next(iter(item.get("networkInterfaces") or []), {})
    access: Record = next(iter(first.get("accessConfigs") or []), {})
    return str((access.get("natIP") if public else first.get("networkIP")) or "")


def described(name: str, item: Record) -> dict[str, str]:
    """What the module returns of an instance."""
    found = {"address": address(item, public=False), "public_address": address(item, public=True)}
    return {"name": name, "state": state(item), **found}
