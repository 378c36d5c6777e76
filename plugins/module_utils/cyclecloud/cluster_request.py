# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A requested cluster: node arrays, parameters, and the template that carries them. No I/O."""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.project import spec_value

# What is wrong with the wish for a cluster, and what the built-in template can take. Pure; private.


_ARRAY = re.compile(r"[a-z][a-z0-9]{0,19}")
_CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_PIN = re.compile(r"[^:/]+:[^:/]+:[^:/]+:\d[\w.]*")
_ID = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/([^/]+)/providers/Microsoft.Network/virtualNetworks/([^/]+)/subnets/([^/]+)",
    re.I,
)
_SIZE = re.compile(r"(Standard|Basic)_\w+")
# What role and spec of the built-in template are called there.
BUILTIN_ARRAYS = {
    "hpc": (
        "HPCMachineType",
        "HPCImageName",
        "MaxHPCExecuteNodeCount",
        "",
        "HPCAvailabilityZone",
        "HPCClusterInitSpecs",
    ),
    "htc": (
        "HTCMachineType",
        "HTCImageName",
        "MaxHTCExecuteNodeCount",
        "HTCUseLowPrio",
        "HTCAvailabilityZone",
        "HTCClusterInitSpecs",
    ),
    "gpu": (
        "GPUMachineType",
        "GPUImageName",
        "MaxGPUExecuteNodeCount",
        "GPUUseLowPrio",
        "GPUAvailabilityZone",
        "GPUClusterInitSpecs",
    ),
}
# Parameters of the built-in template 4.0.x: it lies inside the server, where nothing documented reads it.
BUILTIN = frozenset(
    """Region SubnetId Credentials SchedulerMachineType SchedulerImageName SchedulerHostName SchedulerClusterInitSpecs
    loginMachineType LoginImageName NumberLoginNodes MaxLoginNodeCount LoginClusterInitSpecs HPCMachineType HPCImageName
    MaxHPCExecuteNodeCount HPCMaxScalesetSize HPCClusterInitSpecs HPCAvailabilityZone HTCMachineType HTCImageName
    MaxHTCExecuteNodeCount HTCUseLowPrio HTCSpotMaxPrice HTCClusterInitSpecs HTCAvailabilityZone GPUMachineType
    GPUImageName MaxGPUExecuteNodeCount GPUUseLowPrio GPUSpotMaxPrice GPUClusterInitSpecs GPUAvailabilityZone
    DynamicMachineType DynamicImageName MaxDynamicExecuteCoreCount DynamicUseLowPrio DynamicSpotMaxPrice
    DynamicClusterInitSpecs
    EnableDynamicPartition SchedulerZone SchedulerHAZone DefineNodesAvailabilityZone NodeNameIsHostname NodeNamePrefix
    UseBuiltinSched UseBuiltinShared FilesystemSize SchedFilesystemSize NFSType NFSAddress NFSSharedExportPath
    NFSSharedMountOptions NFSSchedType NFSSchedAddress NFSSchedExportPath NFSSchedMountOptions AdditionalNFS
    AdditionalNFSType AdditionalNFSAddress AdditionalNFSMountPoint AdditionalNFSExportPath AdditionalNFSMountOptions
    ManagedIdentity NodeTags BootDiskSize EnableNodeHealthChecks EnableTerminateNotification configuration_slurm_version
    configuration_slurm_accounting_enabled configuration_slurm_accounting_url configuration_slurm_accounting_user
    configuration_slurm_accounting_password configuration_slurm_accounting_certificate_url
    configuration_slurm_accounting_storageloc configuration_slurm_ha_enabled configuration_slurm_launch_parameters
    configuration_slurm_shutdown_policy additional_slurm_config ReturnProxy UsePublicNetwork ExecuteNodesPublic
    Autoscale""".split()
)


def subnet(value: str) -> str:
    """CycleCloud writes a subnet as ``group/network/subnet``."""
    match = _ID.fullmatch(value)
    return "/".join(match.groups()) if match else value


def name_problems(name: str) -> list[str]:
    """A name that begins with a dash would be an option, and an empty one no cluster."""
    if _CLUSTER_NAME.fullmatch(name):
        return []
    return [f"cluster name {name!r}: letters, digits and _ . -, beginning with a letter or digit"]


def problems(want: t.Mapping[str, t.Any]) -> list[str]:
    """Everything that is wrong with the wish itself, all at once."""
    found = name_problems(want["name"])
    if subnet(want["subnet_id"]).count("/") != 2 or subnet(want["subnet_id"]).startswith("/"):
        found.append(f"subnet {want['subnet_id']!r} is neither group/network/subnet nor the resource ID of a subnet")
    names = [str(one.get("name", "")) for one in want["node_arrays"]]
    found += [
        f"node array {name} is there {names.count(name)} times" for name in sorted(set(names)) if names.count(name) > 1
    ]
    if not names:
        found.append("there is no node array: name at least one")
    if sum(bool(one.get("default")) for one in want["node_arrays"]) > 1:
        found.append("more than one node array is the default partition")
    for one in want["node_arrays"]:
        found += _array_problems(one, want["builtin"])
    for who in ("scheduler", "login"):
        image = want[who].get("image")
        found += [f"{who}: {text}" for text in _image_problems(image)] if image else []
    return found


def _array_problems(one: t.Mapping[str, t.Any], builtin: str) -> list[str]:
    name = str(one.get("name", ""))
    found = []
    if builtin and name not in BUILTIN_ARRAYS:
        found.append("the built-in template has only hpc, htc and gpu; use the shipped one for others")
    elif not _ARRAY.fullmatch(name):
        found.append("its name must be up to 20 small letters and digits, beginning with a letter")
    if name in ("login", "scheduler", "defaults"):
        found.append("this name is taken by the template")
    if not _SIZE.fullmatch(str(one.get("machine_type", ""))):
        found.append(f"machine_type {one.get('machine_type')!r} is no VM size such as Standard_ND96asr_v4")
    if not str(one.get("max_nodes", "")).isdigit() or int(one["max_nodes"]) < 1:
        found.append(f"max_nodes is {one.get('max_nodes')!r}, 1 or more is needed")
    if builtin and name == "hpc" and one.get("spot"):
        found.append("the built-in template has no spot instances in hpc")
    found += _image_problems(str(one.get("image", "")))
    return [f"node array {name or '?'}: {text}" for text in found]


def _image_problems(image: str) -> list[str]:
    if image.startswith("/subscriptions/") or _PIN.fullmatch(image):
        return []
    return [
        f"image {image!r} is not pinned: give publisher:offer:sku:version with a version of numbers, as"
        " azure_compute_preflight returns it, or a resource ID. Nodes with different drivers in one partition cost days"
    ]


# What a cluster template declares. Pure.


_PARAMETER = re.compile(r"\s*\[\[\[\s*parameter\s+(\w+)\s*\]\]\]\s*(?:#.*)?$")
_SECTION = re.compile(r"\s*\[")
_SETTING = re.compile(r"\s*([\w.]+)\s*:?=\s*(.*?)\s*$")
_CLUSTER_SECTION = re.compile(r"^\s*\[cluster\s+([^\]]+?)\s*\]", re.MULTILINE)
_QUOTES = "'''"
# Words of the expression language that are not parameters, and what every cluster has.
_WORDS = {"true", "false", "undefined", "ClusterName"}


class Declared(t.NamedTuple):
    """One parameter; ``default`` is the text of the template, None without one."""

    kind: str
    default: str | None
    required: bool


def _lines(text: str) -> t.Iterator[str]:
    """Settings and sections without comments; a value in triple quotes counts as one line."""
    inside = False
    for line in text.splitlines():
        if inside:
            inside = _QUOTES not in line
        elif line.strip() and not line.lstrip().startswith("#"):
            inside = line.count(_QUOTES) == 1
            yield line


def declared(text: str) -> dict[str, Declared]:
    """Every ``[[[parameter X]]]`` with what is said about it."""
    found: dict[str, Declared] = {}
    name = ""
    for line in _lines(text):
        match = _PARAMETER.match(line)
        if match:
            name = match.group(1)
            found[name] = Declared("", None, False)
        elif _SECTION.match(line):
            name = ""
        elif name:
            found[name] = _with(found[name], line)
    return found


def _with(one: Declared, line: str) -> Declared:
    match = _SETTING.match(line)
    key, value = match.groups() if match else ("", "")
    if key == "ParameterType":
        return one._replace(kind=value)
    if key == "DefaultValue":
        return one._replace(default=value)
    if key == "Required":
        return one._replace(required=value.lower() == "true")
    return one


def used(text: str) -> set[str]:
    """Every parameter that is read, as ``$Name`` or inside ``${…}``."""
    found: set[str] = set()
    for line in _lines(text):
        dummy, dummy, value = line.partition("=")
        for expression in re.findall(r"\$\{(.*)\}", value):
            bare = re.sub(r'"[^"]*"', "", expression)
            found |= {word for word in re.findall(r"[A-Za-z_]\w*(?!\w|\s*\()", bare) if word not in _WORDS}
        found |= set(re.findall(r"\$([A-Za-z_]\w*)", value))
    return found


def clusters(text: str) -> list[str]:
    """The names of the clusters in the file."""
    return _CLUSTER_SECTION.findall(text)


# From what is wanted to the parameters of a template. Pure; private.


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
