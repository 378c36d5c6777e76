# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Would Slurm take these settings, and do they leave what the roles rely on? No I/O; private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight.wording import one_of, say, slip, twice

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_OWNED = {  # the roles write these; a second value would break what they build on it
    "nodename": "slurm_node",
    "partitionname": "slurm_partitions",
    "clustername": "cluster_name",
    "slurmctldhost": "slurm_controller_hosts",
    "statesavelocation": "slurm_state_dir",
    "accountingstoragehost": "slurm_database_host",
    "accountingstorageport": "slurm_database_port",
    "topologyplugin": "slurm_topology",
    "slurmuser": "the user slurm, to whom the packages and roles give every file",
    "slurmctldpidfile": "the units of the packages and roles",
    "slurmdpidfile": "the units of the packages and roles",
    "authtype": "auth/munge, which the role munge sets up",
    "accountingstoragetype": "accounting_storage/slurmdbd, which the role slurm_database sets up",
}
# Of cgroup.conf, where only slurmd would find a slip, when it starts. Releases add names, so others are let through.
_CGROUP = """AllowedRAMSpace AllowedSwapSpace CgroupMountpoint CgroupPlugin ConstrainCores ConstrainDevices
ConstrainRAMSpace ConstrainSwapSpace EnableControllers IgnoreSystemd IgnoreSystemdOnFailure MaxRAMPercent
MaxSwapPercent MemorySwappiness MinRAMSpace SignalChildrenProcesses SystemdTimeout""".split()
_LOST_AT_BOOT = ("/tmp", "/run", "/dev/shm")  # noqa: S108 - named to be refused
Inputs = t.Mapping[str, t.Any]


def pair(label: str, key: object, value: object, owned: t.Mapping[str, str]) -> list[str]:
    """Return what is wrong with one setting: its name, its kind of value, or that it contradicts the roles."""
    if not _KEY.fullmatch(str(key)):
        return [say(label, key, "no name of a setting", "names such as slurm.conf has them")]
    if str(key).lower() in owned:
        return [say(f"{label}.{key}", value, "contradicts what the roles write", owned[str(key).lower()])]
    if isinstance(value, dict):
        return [say(f"{label}.{key}", value, "is no value of a setting", "text, a number, true, false or a list")]
    return []


def settings(inputs: Inputs) -> list[str]:
    """Return what is wrong with the site's own lines of slurm.conf."""
    label = "slurm_extra_settings"
    extra = inputs.get(label) or {}
    problems = [text for key, value in extra.items() for text in pair(label, key, value, _OWNED)]
    lower = {str(key).lower(): value for key, value in extra.items()}
    problems += [
        say(label, key, "set twice in different case", "each name once") for key in twice(str(k).lower() for k in extra)
    ]
    parameters = lower.get("slurmctldparameters")
    if parameters is not None and "enable_configless" not in _words(parameters):
        problem = "takes away enable_configless, without which no compute node gets its configuration"
        problems.append(say(f"{label}.SlurmctldParameters", parameters, problem, "a list with enable_configless in it"))
    port, requested = lower.get("slurmctldport", 6817), inputs.get("slurm_compute_controller_port", 6817)
    if str(port) != str(requested):
        problems.append(
            say(
                f"{label}.SlurmctldPort",
                port,
                "compute nodes ask another port",
                f"slurm_compute_controller_port, now {requested}",
            )
        )
    kind = str(lower.get("selecttype", ""))
    detail = lower.get("selecttypeparameters", "CR_Core_Memory")
    if kind == "select/linear" and any(
        word.upper().startswith(("CR_CORE", "CR_CPU", "CR_SOCKET")) for word in _words(detail)
    ):
        problems.append(
            say(
                f"{label}.SelectType",
                kind,
                f"does not go with SelectTypeParameters {detail}",
                "SelectTypeParameters: CR_Memory with it",
            )
        )
    return problems


def _words(value: object) -> list[str]:
    return [str(word).strip() for word in (value if isinstance(value, list) else str(value).split(","))]


def cgroup(inputs: Inputs) -> list[str]:
    """Return what is wrong with the settings of cgroup.conf."""
    problems = []
    for key, value in (inputs.get("slurm_cgroup_settings") or {}).items():
        label = "slurm_cgroup_settings"
        meant = slip(str(key), _CGROUP)
        problems += [say(label, key, "no setting of cgroup.conf", meant)] if meant else pair(label, key, value, {})
    return problems


def memory(inputs: Inputs) -> list[str]:
    """Return what is wrong with the share of memory that jobs do not get."""
    headroom = inputs.get("slurm_memory_headroom", 0.05)
    if isinstance(headroom, (int, float)) and not isinstance(headroom, bool) and 0 <= headroom < 1:
        return []
    return [say("slurm_memory_headroom", headroom, "not a share of the memory", "a number from 0 to below 1")]


def state(inputs: Inputs) -> list[str]:
    """Return what is wrong with the directory of slurmctld's state: lost at boot, or not seen by all controllers."""
    problems = []
    path = str(inputs.get("slurm_state_dir") or "/var/lib/slurm/slurmctld").rstrip("/")
    if not path.startswith("/") or any(f"{path}/".startswith(f"{directory}/") for directory in _LOST_AT_BOOT):
        problem = "jobs would be lost at a boot" if path.startswith("/") else "not an absolute path"
        problems.append(say("slurm_state_dir", path, problem, "a path on a disk, of slurmctld's own"))
    controllers = list(dict.fromkeys(inputs.get("preflight_controller_hosts") or []))
    shared = [directory.rstrip("/") for directory in inputs.get("preflight_shared_paths") or []]
    if len(controllers) > 1 and not inputs.get("slurm_state_is_shared"):
        problem = "several controllers need a state directory that all of them see"
        accepted = "one host, or slurm_state_dir on shared storage and slurm_state_is_shared: true"
        problems.append(say("preflight_controller_hosts", controllers, problem, accepted))
    elif len(controllers) > 1 and not any(f"{path}/".startswith(f"{directory}/") for directory in shared):
        problem = "slurm_state_is_shared is true, but this is on no shared storage"
        problems.append(
            say("slurm_state_dir", path, problem, f"a path below a mount of shared_storage_mounts ({one_of(shared)})")
        )
    return problems


CHECKS = (settings, cgroup, memory, state)
