# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what is wanted to the parameters of a template. Pure; private."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.project import spec_value
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.template import Declared
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.wish import BUILTIN, BUILTIN_ARRAYS, subnet

Json = t.Dict[str, t.Any]


def build(want: t.Mapping[str, t.Any]) -> Json:
    """The parameters, without those that the user adds."""
    arrays, scheduler, login = want["node_arrays"], want["scheduler"], want["login"]
    image = scheduler.get("image") or arrays[0]["image"]
    shared, slurm = want["shared"], want["slurm"]
    made: Json = {
        "Region": want["region"],
        "SubnetId": subnet(want["subnet_id"]),
        "Credentials": want["credentials"],
        "Autoscale": want["autoscale"],
        "NodeTags": want["tags"],
        "ManagedIdentity": want["node_identity"],
        "SchedulerMachineType": scheduler["machine_type"],
        "SchedulerImageName": image,
        "LoginImageName": login.get("image") or image,
        "NumberLoginNodes": int(login.get("count", 0)),
        "FilesystemSize": int(shared["size_gb"]),
        "SchedFilesystemSize": int(shared["sched_size_gb"]),
        "UseBuiltinShared": not shared.get("nfs_address"),
        "NFSAddress": shared.get("nfs_address", ""),
        "NFSSharedExportPath": shared.get("nfs_export", ""),
        "configuration_slurm_version": str(slurm["version"]),
        "NodeNamePrefix": slurm["node_prefix"],
        "BootDiskSize": int(scheduler.get("disk_gb", 0)),
        "SchedulerClusterInitSpecs": _specs(want, "scheduler"),
        "LoginClusterInitSpecs": _specs(want, "login"),
    }
    machine = login.get("machine_type") or scheduler["machine_type"]
    if want["builtin"]:
        made["loginMachineType"] = machine
        made["HPCMaxScalesetSize"] = want["max_scaleset_size"]
    else:
        made["LoginMachineType"] = machine
        made["MaxScalesetSize"] = want["max_scaleset_size"]
    for one in arrays:
        made.update(_array(one, want))
    return made


def _array(one: t.Mapping[str, t.Any], want: t.Mapping[str, t.Any]) -> Json:
    name = one["name"]
    suffixes = ("MachineType", "ImageName", "MaxNodes", "Spot", "Zone", "ClusterInitSpecs")
    keys = BUILTIN_ARRAYS[name] if want["builtin"] else tuple(f"{name}{end}" for end in suffixes)
    values = (
        one["machine_type"],
        one["image"],
        int(one["max_nodes"]),
        bool(one.get("spot")),
        str(one.get("zone") or ""),
        _specs(want, "compute"),
    )
    return {key: value for key, value in zip(keys, values) if key and not (key.endswith("Zone") and not value)}


def _specs(want: t.Mapping[str, t.Any], where: str) -> Json:
    """Our own project on compute nodes first, then others in their order."""
    mine = want["project"]
    found = (
        [{"project": mine["name"], "spec": mine["spec"], "version": mine["version"]}]
        if mine.get("name") and where == "compute"
        else []
    )
    others = [one for one in want["specs"] if where in (one.get("nodes") or ["compute"])]
    return spec_value([*found, *({"spec": "default", **one} for one in others)], want["locker"])


def unknown(values: t.Mapping[str, t.Any], known: t.Mapping[str, Declared] | None) -> list[str]:
    """What CycleCloud would take silently and forget."""
    names = set(BUILTIN) if known is None else set(known)
    return [
        f"parameter {name} is not declared by the template{_like(name, names)}" for name in sorted(set(values) - names)
    ]


def lacking(values: t.Mapping[str, t.Any], known: t.Mapping[str, Declared] | None) -> list[str]:
    """What the template needs and would not get."""
    return [
        f"parameter {name} is required by the template and not given"
        for name, one in sorted((known or {}).items())
        if one.required and one.default in (None, "") and values.get(name) in (None, "", {})
    ]


def _like(name: str, names: t.Iterable[str]) -> str:
    near = [one for one in sorted(names) if one.lower() == name.lower()]
    return f"; it has {near[0]}" if near else ""


def same(wanted: t.Any, have: t.Any) -> bool:
    """Compare leniently: exported values may be texts."""
    if wanted in (None, "", {}) and have in (None, "", {}):
        return True
    return wanted == have or _plain(wanted) == _plain(have)


def _plain(value: t.Any) -> str:
    if isinstance(value, str):
        return value.strip() if value.strip().lower() not in ("true", "false") else value.strip().lower()
    return json.dumps(value, sort_keys=True) if isinstance(value, (dict, list)) else str(value).lower()


def drifted(wanted: Json, exported: t.Mapping[str, t.Any], secret: t.Container[str]) -> list[str]:
    """Which of our parameters the server has otherwise; secrets cannot be compared so."""
    return [key for key in sorted(wanted) if key not in secret and not same(wanted[key], exported.get(key))]


def lines(values: t.Mapping[str, t.Any], keys: t.Iterable[str], secret: t.Container[str]) -> str:
    """For a diff."""
    shown = {
        key: "(hidden)" if key in secret else json.dumps(values[key], sort_keys=True)
        for key in sorted(keys)
        if key in values
    }
    return "".join(f"{key} = {value}\n" for key, value in shown.items())
