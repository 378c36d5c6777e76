# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the wish for a cluster, and what the built-in template can take. Pure; private."""

from __future__ import annotations

import re
import typing as t

_ARRAY = re.compile(r"[a-z][a-z0-9]{0,19}")
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
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
    if _CLUSTER.fullmatch(name):
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
