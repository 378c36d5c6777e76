# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_bandwidth: what is asked for, and of which GPUs. Pure, private."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _measure
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, validate_expectation
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import validate_seconds, validate_units
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch, LaunchError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import Topology, address

CHECK = "gpu_bandwidth"
UNIT = "GB/s"
DIRECTIONS = ("h2d", "d2h", "d2d")

SPEC: dict[str, Json] = {
    "tool": {"type": "str", "default": "auto", "choices": ["auto", "bandwidthTest", "nvbandwidth"]},
    "path": {"type": "str"},
    "directions": {"type": "list", "elements": "str", "default": list(DIRECTIONS), "choices": list(DIRECTIONS)},
    "gpus": {"type": "raw"},
    "topology": {"type": "dict"},
    "mode": {"type": "str", "default": "sequential", "choices": ["sequential", "parallel"]},
    "size": {"type": "int"},
    "bind": {"type": "bool", "default": True},
    "arguments": {"type": "list", "elements": "str", "default": []},
    "timeout": {"type": "float", "default": 120},
    **users.SPEC,
    **_measure.SPEC,
    **_measure.NODE,
    **_measure.SYSFS,
}


_SHIFT = "; which one is gone says gpu_count of gpu_info"


class BandwidthError(ValueError):
    """The measurement makes no sense as asked; the text is fit for the user."""


@dataclass(frozen=True)
class Gpu:
    """One GPU that is to be measured, and what is known of it; ``problem`` says why it cannot be.

    ``surplus``: no device has this number, because those behind one that is gone have moved up.
    """

    index: int
    uuid: str | None = None
    bus_id: str | None = None
    numa_node: int | None = None
    cpus: str = ""
    problem: str = ""
    surplus: bool = False

    @property
    def visible(self) -> str:
        """Return what names it to CUDA: an index counts wrong where a GPU is missing."""
        return self.uuid or str(self.index)


@dataclass(frozen=True)
class Listed:
    """One GPU as nvidia-smi lists it."""

    index: int
    uuid: str
    bus_id: str


def wanted(value: t.Any) -> list[int] | None:
    """Read the option gpus: a count, a list of indexes, or nothing."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        value = value.split(",") if "," in value else value.strip()
    try:
        if isinstance(value, bool):
            raise ValueError
        found = [int(item) for item in value] if isinstance(value, (list, tuple)) else list(range(int(value)))
    except (TypeError, ValueError) as exc:
        raise BandwidthError(f"gpus is {value!r}; a number of GPUs or a list of their indexes is needed") from exc
    if len(set(found)) != len(found) or min(found, default=0) < 0 or len(found) > 1024:
        raise BandwidthError(f"gpus is {value!r}; indexes are numbers from 0, each once")
    return found


def validate(params: t.Mapping[str, t.Any], launch: Launch) -> None:
    """Refuse what cannot be measured or judged, before anything starts."""
    for expectation in params["expect"]:
        validate_expectation(expectation)
    validate_units(params["expect"], CHECK, dict.fromkeys(DIRECTIONS, UNIT))
    if not params["directions"] or len(set(params["directions"])) != len(params["directions"]):
        raise BandwidthError("directions must name at least one, and each once")
    if params["size"] is not None and params["size"] < 1 << 20:
        raise BandwidthError(f"size is {params['size']}; less than 1 MiB measures latency, not bandwidth")
    validate_seconds("timeout", params["timeout"])
    taken = [name for name in ("cpu_masks", "visible_devices") if params[name]]
    if taken or launch.ranks != 1:
        what = ", ".join(taken) or f"{launch.nodes} nodes with {launch.ranks_per_node} ranks"
        raise LaunchError(f"{what}: one process measures one GPU of one node, where the topology says it belongs")


def plan(indexes: t.Sequence[int] | None, topology: Topology | None, listed: t.Sequence[Listed] | None) -> list[Gpu]:
    """Return the GPUs to measure; ``listed`` is what nvidia-smi shows here, None where it cannot be asked."""
    places = {gpu.index: gpu for gpu in topology.gpus} if topology else {}
    if indexes is None:
        indexes = sorted(places) if topology and places else [gpu.index for gpu in listed or []]
    found = []
    for index in indexes:
        place = places.get(index)
        gpu = Gpu(index)
        if place:
            gpu = replace(gpu, bus_id=place.bus_id or None, numa_node=place.numa_node, cpus=place.cpus)
        elif places and listed is None:
            gpu = _gone(gpu, f"the topology has {len(places)} GPUs and no GPU {index}", places)
        found.append(gpu if listed is None else _identified(gpu, listed))
    return found


def _identified(gpu: Gpu, listed: t.Sequence[Listed]) -> Gpu:
    """Take the uuid of the GPU that sits where it should; indexes shift when one is lost."""
    key, text = (address(gpu.bus_id or ""), f"at {gpu.bus_id}") if gpu.bus_id else (None, "")
    same = [one for one in listed if (address(one.bus_id) == key if key else one.index == gpu.index)]
    if not same:
        problem = f"nvidia-smi does not list GPU {gpu.index} {text}".rstrip()
        problem = f"{problem}; it lists {len(listed)}"
        return replace(gpu, problem=problem) if gpu.bus_id else _gone(gpu, problem, [one.index for one in listed])
    return replace(gpu, uuid=same[0].uuid or None, bus_id=gpu.bus_id or same[0].bus_id)


def _gone(gpu: Gpu, problem: str, known: t.Iterable[int]) -> Gpu:
    """A gap between numbers is the GPU that is gone; behind them all it may be any."""
    surplus = gpu.index > max(known, default=-1)
    return replace(gpu, problem=f"{problem}{_SHIFT if surplus else ''}", surplus=surplus)


def expected(params: t.Mapping[str, t.Any]) -> bool:
    """Say whether somebody counts on GPUs here."""
    return any(one["check"] == CHECK for one in params["expect"])
