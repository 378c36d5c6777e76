# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi nvlink -s``: which links of which GPU are up, and how fast."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_messages as said
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import text as words
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log, log_of

_GPU = re.compile(r"GPU (\d{1,3}): (.*?)(?: \(UUID: ([^()]*)\))?")
_LINK = re.compile(r"Link (\d{1,3}): (.*)")
# Spelled inActive, inactive, InActive; NVLink and Nvlink.
_ALL_INACTIVE = re.compile(r"(?i)\ball links are in-?active")


@dataclass(frozen=True)
class Link:
    """``gbps`` is GB/s in each direction, None for a link that is not up."""

    number: int
    gbps: float | None
    state: str


@dataclass(frozen=True)
class NvlinkGpu:
    """``all_inactive``: nvidia-smi printed a sentence in place of the links, so their number is unknown."""

    index: int
    name: str | None
    uuid: str | None
    links: list[Link]
    all_inactive: bool

    @property
    def active(self) -> int:
        return sum(link.gbps is not None for link in self.links)


@dataclass(frozen=True)
class Run:
    """One output; a link that is down is a fact and no failure.

    It has no end marker, so it is complete when all GPUs that have links list as many.
    """

    gpus: list[NvlinkGpu]
    messages: list[said.Message]
    cut: bool = False

    @property
    def cause(self) -> Cause | None:
        return self.messages[0] if self.messages else None

    @property
    def complete(self) -> bool:
        counts = {len(gpu.links) for gpu in self.gpus if not gpu.all_inactive}
        return bool(self.gpus) and len(counts) <= 1 and 0 not in counts and not self.cut

    @property
    def ok(self) -> bool:
        return self.complete and not self.messages


@dataclass
class _Gpu:
    index: int
    name: str | None
    uuid: str | None
    links: list[Link] = field(default_factory=list)
    all_inactive: bool = False


def parse_nvlink(source: words.Source) -> Log[Run]:
    """Read one or several outputs; never raises, whatever the text."""
    outputs: list[list[_Gpu]] = []
    messages: list[said.Message] = []
    tail, last = words.Tail(), ""
    for line in words.lines(source, tail):
        last = line
        complaint = said.complaint(line)
        gpu, link = _GPU.fullmatch(line), _LINK.fullmatch(line)
        if complaint:
            messages.append(complaint)
        elif gpu:
            seen = _Gpu(int(gpu.group(1)), gpu.group(2) or None, gpu.group(3))
            if not outputs or seen.index <= outputs[-1][-1].index:
                outputs.append([])
            outputs[-1].append(seen)
        elif link and outputs:
            outputs[-1][-1].links.append(_link(int(link.group(1)), link.group(2)))
        elif _ALL_INACTIVE.search(line):
            outputs = outputs or [[_Gpu(0, None, None)]]
            outputs[-1][-1].all_inactive = True
    # Without its unit the last speed may have lost digits, too.
    cut = tail.cut and not last.endswith(("GB/s", ">"))
    runs = [
        Run(
            [NvlinkGpu(seen.index, seen.name, seen.uuid, seen.links, seen.all_inactive) for seen in output],
            messages,
            cut,
        )
        for output in outputs
    ]
    return log_of(runs, messages)


def _link(number: int, text: str) -> Link:
    speed, unit = words.quantity(text.strip())
    return Link(number, speed if unit == "GB/s" and speed else None, text.strip().strip("<>"))
