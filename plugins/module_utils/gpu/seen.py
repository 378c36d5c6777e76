# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the checks of gpu_info know of a node, and what they find. Pure, private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.inventory import Expected, Inventory
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.read import Reading
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_gpu import Gpu
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.topology.machine import Topology


class Options(t.NamedTuple):
    """What is expected of the node; ``gpus`` 0 and no model or places expect nothing."""

    node: str
    gpus: int = 0
    model: str | None = None
    places: t.Sequence[Expected] = ()
    expect: t.Sequence[Json] = ()
    run: str | None = None
    profile: str | None = None

    def expects(self, check: str) -> bool:
        """Return whether somebody counts on a check."""
        return any(expectation.get("check") == check for expectation in self.expect)


class Process(t.NamedTuple):
    """A process, the GPUs that it uses and the CPUs that it may run on; None if it cannot be seen any more."""

    pid: int
    gpus: t.Sequence[int]
    cpus: str | None


class Seen(t.NamedTuple):
    """All that was read."""

    reading: Reading
    inventory: Inventory
    topology: Topology
    processes: t.Sequence[Process] = ()

    @property
    def gpus(self) -> dict[int, Gpu]:
        return self.inventory.gpus

    def problem(self, call: str) -> str:
        return self.reading.problems.get(call, "")


class Finding(t.NamedTuple):
    """What one check saw; without a verdict the expectations decide. ``gpus`` are those with a finding of its own."""

    metrics: t.Sequence[Json] = ()
    verdict: str | None = None
    reason: str = ""
    blame: str = "hardware"
    gpus: t.Sequence[int] = ()
    samples: t.Sequence[Json] = ()


Measure = t.Callable[[Seen, Options], Finding]


def listing(numbers: t.Iterable[int]) -> str:
    """Write indexes for people: GPU 3, GPUs 3 and 5, GPUs 1, 3 and 5."""
    texts = [str(number) for number in sorted(set(numbers))]
    if len(texts) < 2:
        return f"GPU {''.join(texts)}"
    return f"GPUs {', '.join(texts[:-1])} and {texts[-1]}"
