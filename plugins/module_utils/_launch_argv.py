# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command lines that start a program on one or many nodes. Pure, private; ``_launch`` makes the Launch of options.

Values of variables stay out of the command line, where every user of the machine could read them: the launcher gets
them as its own environment and is told their names.
"""

from __future__ import annotations

import math
import posixpath
import typing as t

IMMEDIATE = 60  # seconds that srun waits for nodes; a job that was faster is not waited for
# mpirun hands these on by itself and refuses or warns when it is told to.
_FORWARDED = ("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_")


class LaunchError(ValueError):
    """The program cannot be started as asked; the text is fit for the user."""


class Launch(t.NamedTuple):
    """One way to start a program; ``options`` are long options of the launcher that replace its defaults here."""

    kind: str = "local"
    path: str = ""
    nodes: int = 1
    ranks_per_node: int = 1
    hosts: t.Sequence[str] = ()
    hostfile: str | None = None
    options: t.Mapping[str, t.Any] = {}
    container_image: str | None = None
    container_mounts: t.Sequence[str] = ()
    environment: t.Mapping[str, str] = {}
    cpu_masks: t.Sequence[str] = ()
    job_name: str = "hpcai"
    timeout: float = 600
    root: bool = False
    in_job: bool = False

    @property
    def ranks(self) -> int:
        """Return how many processes start."""
        return self.nodes * self.ranks_per_node


class Command(t.NamedTuple):
    """What to run, and the variables to set for it."""

    argv: list[str]
    environment: dict[str, str]


def flags(options: t.Mapping[str, t.Any], joined: bool = True) -> list[str]:
    """Turn long options into arguments: underscores become dashes, true is a bare flag, false and none are left out.

    srun reads ``--name=value`` (``joined``), mpirun only ``--name value``. A list repeats the option.
    """
    found: list[str] = []
    for key, value in options.items():
        name = f"--{key.replace('_', '-')}"
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is None or one is False:
                continue
            found += [name] if one is True else [f"{name}={one}"] if joined else [name, str(one)]
    return found


def command(launch: Launch, argv: t.Sequence[str]) -> Command:
    """Return the whole command line for a program and its arguments."""
    front = {"mpirun": _mpirun, "srun": _srun}.get(launch.kind)
    return Command([*(front(launch) if front else []), *argv], dict(launch.environment))


def per_numa(masks: t.Sequence[str]) -> int:
    """Return N of ``ppr:N:numa``, which gives ranks to NUMA nodes in ascending order, as many to each."""
    groups: list[int] = []
    counts: list[int] = []
    for mask in (int(text, 16) for text in masks):
        if groups and mask == groups[-1]:
            counts[-1] += 1
            continue
        groups.append(mask)
        counts.append(1)
    lowest = [mask & -mask for mask in groups]
    if len(set(counts)) != 1 or lowest != sorted(set(lowest)):
        raise LaunchError(
            f"mpirun fills NUMA nodes in ascending order with as many ranks each, cpu_masks {', '.join(masks)} do not;"
            " give what the filter cpu_masks returns as rank_masks and visible_devices, or launcher_options with map_by"
        )
    return counts[0]


def _mpirun(launch: Launch) -> list[str]:
    where: dict[str, t.Any] = {"hostfile": launch.hostfile}
    # A job knows its own nodes; elsewhere there would be no more slots than cores.
    hosts = launch.hosts or ([] if launch.hostfile or launch.in_job else ["localhost"])
    if hosts:
        where["host"] = ",".join(f"{host}:{launch.ranks_per_node}" for host in hosts)
    place: dict[str, t.Any] = {"map_by": f"ppr:{launch.ranks_per_node}:node", "bind_to": "none"}
    if launch.cpu_masks and "map_by" not in launch.options:
        place = {"map_by": f"ppr:{per_numa(launch.cpu_masks)}:numa", "bind_to": "numa"}
    root = {"allow_run_as_root": launch.root}
    options = flags({**root, **place, **launch.options, **where, "np": launch.ranks}, joined=False)
    names = [name for name in launch.environment if not name.startswith(_FORWARDED)]
    return [launch.path, *options, *(word for name in names for word in ("-x", name))]


def _srun(launch: Launch) -> list[str]:
    defaults = {
        "job_name": launch.job_name,
        "kill_on_bad_exit": 1,
        "exclusive": not launch.in_job,  # of a step it means no CPUs but one per rank, whatever the masks say
        "immediate": None if launch.in_job else IMMEDIATE,
        "chdir": "/",  # the caller's directory need not exist on the nodes
        "time": math.ceil(launch.timeout / 60) + 1,
        "export": "ALL",
    }
    if launch.cpu_masks:
        defaults["cpu_bind"] = "mask_cpu:" + ",".join(f"0x{int(mask, 16):x}" for mask in launch.cpu_masks)
    if launch.container_image:
        # Without it a variable that the image sets as well keeps the value of the image.
        defaults["container_env"] = ",".join(launch.environment) or None
    asked = {
        "nodes": launch.nodes,
        "ntasks_per_node": launch.ranks_per_node,
        "ntasks": launch.ranks,
        "nodelist": ",".join(launch.hosts) or None,
        "container_image": launch.container_image,
        "container_mounts": ",".join(mounts(launch)) or None,
    }
    return [launch.path, *flags({**defaults, **launch.options, **asked})]


def mounts(launch: Launch) -> list[str]:
    """Return the mounts of a container; one without the topology file of NCCL would fail or be slow."""
    found = list(launch.container_mounts)
    topology = launch.environment.get("NCCL_TOPO_FILE")
    if not launch.container_image or not topology:
        return found
    covered = {(mount.split(":")[1:2] or [mount])[0].rstrip("/") for mount in found}
    folder = topology
    while folder not in covered and folder not in ("", "/"):
        folder = posixpath.dirname(folder)
    return found if folder in covered else [*found, f"{topology}:{topology}:ro"]
