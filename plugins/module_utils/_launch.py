# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a program is started on one or many nodes: the options that several modules share. Private."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch_argv import (
    Command,
    Launch,
    LaunchError,
    command,
    flags,
)

__all__ = ["SPEC", "Command", "Launch", "LaunchError", "command", "environment", "flags", "here", "read"]

# HCOLL breaks or slows collectives of ranks that only use MPI to find each other.
ALWAYS = {"OMPI_MCA_coll_hcoll_enable": "0"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MASK = re.compile(r"(0x)?0*[1-9a-f][0-9a-f]*")
_OWN = {"np", "n", "host", "hostfile", "x", "nodes", "ntasks", "ntasks_per_node", "nodelist"}
_OWN |= {"container_image", "container_mounts"}
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

SPEC: dict[str, dict[str, t.Any]] = {
    "launcher": {"type": "str", "default": "local", "choices": ["local", "mpirun", "srun"]},
    "launcher_path": {"type": "path"},
    "launcher_options": {"type": "dict", "default": {}},
    "nodes": {"type": "int"},
    "ranks_per_node": {"type": "int", "default": 1},
    "hosts": {"type": "list", "elements": "str", "default": []},
    "hostfile": {"type": "path"},
    "container_image": {"type": "str"},
    "container_mounts": {"type": "list", "elements": "str", "default": []},
    "environment": {"type": "dict", "default": {}},
    "cpu_masks": {"type": "list", "elements": "str", "default": []},
    "visible_devices": {"type": "list", "elements": "int", "default": []},
}


def read(params: t.Mapping[str, t.Any], **more: t.Any) -> Launch:
    """Make a launch of a module's options; ``more`` are the other fields: path, job_name, timeout, root, in_job."""
    kind, hosts = params["launcher"], params["hosts"]
    variables = environment(params["environment"])
    if params["visible_devices"] or params["cpu_masks"]:
        # CUDA would put the fastest first, nvidia-smi and the topology do not.
        variables.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if params["visible_devices"]:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(str(number) for number in params["visible_devices"])
    launch = Launch(
        kind=kind,
        nodes=len(hosts) or 1 if params["nodes"] is None else params["nodes"],
        ranks_per_node=params["ranks_per_node"],
        hosts=hosts,
        hostfile=params["hostfile"],
        options=_named(params["launcher_options"]),
        container_image=params["container_image"],
        container_mounts=params["container_mounts"],
        environment={**({} if kind == "local" else ALWAYS), **variables},
        cpu_masks=params["cpu_masks"],
        **{"path": params["launcher_path"] or kind, **more},
    )
    _validate(launch)
    return launch


def here(params: t.Mapping[str, t.Any], **more: t.Any) -> Launch:
    """Make a launch as this machine can start it; raises ``_find.NotFound`` where it has no such launcher."""
    path, variables = _find.launcher(params["launcher"], params["launcher_path"])
    surely = {**params, "environment": {**variables, **params["environment"]}}
    return read(surely, path=path, root=os.geteuid() == 0, in_job="SLURM_JOB_ID" in os.environ, **more)


def environment(asked: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return variables as text; what YAML made of an unquoted yes or nothing is refused instead of guessed."""
    for name, value in asked.items():
        if not _NAME.fullmatch(str(name)):
            raise LaunchError(f"{name!r} is no name of an environment variable")
        if value is None or isinstance(value, (bool, dict, list)) or "\0" in str(value):
            raise LaunchError(f"environment variable {name} is {value!r}; quote the text that is meant")
    return {name: str(value) for name, value in asked.items()}


def _named(options: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Spell options one way, so that one given with dashes replaces a default."""
    return {str(key).lstrip("-").replace("-", "_"): value for key, value in options.items()}


def _validate(launch: Launch) -> None:
    if launch.nodes < 1 or launch.ranks_per_node < 1:
        raise LaunchError(f"nodes {launch.nodes} and ranks_per_node {launch.ranks_per_node} must be at least 1")
    bad = [name for name in launch.hosts if not _HOST.fullmatch(name)]
    if bad or len(set(launch.hosts)) != len(launch.hosts):
        raise LaunchError(f"hosts must be plain host names, each once, not {', '.join(bad or launch.hosts)}")
    if launch.hosts and len(launch.hosts) != launch.nodes:
        raise LaunchError(f"nodes is {launch.nodes}, but hosts names {len(launch.hosts)}")
    bad = [mask for mask in launch.cpu_masks if not _MASK.fullmatch(mask.lower())]
    if bad:
        raise LaunchError(f"cpu_masks must be hexadecimal and not zero, not {', '.join(bad)}")
    if launch.cpu_masks and len(launch.cpu_masks) != launch.ranks_per_node:
        raise LaunchError(f"{launch.ranks_per_node} ranks per node need as many cpu_masks, not {len(launch.cpu_masks)}")
    taken = sorted(_OWN & set(launch.options))
    if taken:
        raise LaunchError(f"launcher_options {', '.join(taken)}: the module has options of its own for that")
    _fits(launch)


def _fits(launch: Launch) -> None:
    """Refuse options that another launcher has, rather than drop them in silence."""
    by_kind: dict[str, dict[str, t.Any]] = {
        "local": {"hosts": launch.hosts, "hostfile": launch.hostfile, "cpu_masks": launch.cpu_masks},
        "mpirun": {"container_image": launch.container_image},
        "srun": {"hostfile": launch.hostfile},
    }
    wrong = by_kind[launch.kind]
    if launch.kind == "local":
        wrong.update(container_image=launch.container_image, launcher_options=launch.options)
        wrong["more than one rank"] = launch.ranks > 1
    if not launch.container_image:
        wrong["container_mounts without container_image"] = launch.container_mounts
    names = [name for name, value in wrong.items() if value]
    if names:
        raise LaunchError(f"launcher {launch.kind} does not take {', '.join(names)}")
    if launch.kind == "mpirun":
        if launch.hosts and launch.hostfile:
            raise LaunchError("give mpirun either hosts or hostfile")
        if launch.nodes > 1 and not (launch.hosts or launch.hostfile or launch.in_job):
            raise LaunchError(f"mpirun needs hosts or hostfile for {launch.nodes} nodes")
