# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi nvlink -s`` and ``-e``: which links of which GPU are up, how fast, and their error counters."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_values
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import text as words
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, Log, log_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, lines, number

# ``nvidia-smi nvlink -s``: which links of which GPU are up, and how fast.


_GPU = re.compile(r"GPU (\d{1,3}): (.*?)(?: \(UUID: ([^()]*)\))?")
_LINK = re.compile(r"Link (\d{1,3}): (.*)")
# Spelled inActive, inactive, InActive; NVLink and Nvlink.
_ALL_INACTIVE = re.compile(r"(?i)\ball links are in-?active")
# "NVML: Unable to retrieve NVLink speed for link 3: Unknown Error", ".. information for link 3 - inActive"
_LINK_SENTENCE = re.compile(r"(?i)NVML: Unable to .{1,80}\blink (\d{1,3})(?:: ?| - )(.{1,200})")
_INACTIVE = re.compile(r"(?i)in-?active")
# What may stand in place of a GPU's links.
_SENTENCE = re.compile(r"(?i)NVML: .*|.*\b(?:MIG|NVLink)\b.*")
_LONGEST_SENTENCE = 400


@dataclass(frozen=True)
class NvlinkState:
    """``gbps`` is GB/s in each direction, None for a link that is not up, or ``unread``: its state is the error."""

    number: int
    gbps: float | None
    state: str
    unread: bool = False


@dataclass(frozen=True)
class NvlinkGpu:
    """``sentence``: nvidia-smi printed it in place of the links, so their number is unknown.

    With ``all_inactive`` it says that none is up. Else it says why they cannot be asked, as in MIG mode.
    """

    index: int
    name: str | None
    uuid: str | None
    links: list[NvlinkState]
    all_inactive: bool
    sentence: str | None = None

    @property
    def active(self) -> int:
        return sum(link.gbps is not None for link in self.links)

    @property
    def unread(self) -> str | None:
        """Return what was printed instead of the state of some or all links; None where all states were read."""
        if self.sentence and not self.all_inactive:
            return self.sentence
        return next((f"link {link.number}: {link.state}" for link in self.links if link.unread), None)


@dataclass(frozen=True)
class NvlinkRun:
    """One output; a link that is down is a fact and no failure.

    It has no end marker, so it is complete when all GPUs that have links list as many.
    """

    gpus: list[NvlinkGpu]
    messages: list[nvidia_smi_values.Message]
    cut: bool = False

    @property
    def cause(self) -> Cause | None:
        return self.messages[0] if self.messages else None

    @property
    def complete(self) -> bool:
        counts = {len(gpu.links) for gpu in self.gpus if not gpu.all_inactive and gpu.sentence is None}
        return bool(self.gpus) and len(counts) <= 1 and 0 not in counts and not self.cut

    @property
    def ok(self) -> bool:
        return self.complete and not self.messages and all(gpu.unread is None for gpu in self.gpus)


@dataclass
class _Gpu:
    index: int
    name: str | None
    uuid: str | None
    links: list[NvlinkState] = field(default_factory=list)
    all_inactive: bool = False
    sentence: str | None = None

    def done(self) -> NvlinkGpu:
        """A sentence counts where there are no links: behind them it is another program's."""
        sentence = None if self.links else self.sentence
        return NvlinkGpu(self.index, self.name, self.uuid, self.links, self.all_inactive, sentence)


def parse_nvlink(source: words.Source) -> Log[NvlinkRun]:
    """Read one or several outputs; never raises, whatever the text."""
    outputs: list[list[_Gpu]] = []
    messages: list[nvidia_smi_values.Message] = []
    tail, last = words.Tail(), ""
    for line in words.lines(source, tail):
        last = line
        complaint = nvidia_smi_values.complaint(line)
        gpu, link, sentence = _GPU.fullmatch(line), _LINK.fullmatch(line), _LINK_SENTENCE.fullmatch(line)
        if complaint:
            messages.append(complaint)
        if sentence and outputs:
            outputs[-1][-1].links.append(_link_state(int(sentence.group(1)), sentence.group(2)))
        elif complaint:
            continue
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
            outputs[-1][-1].sentence = line[:_LONGEST_SENTENCE]
        elif outputs and outputs[-1][-1].sentence is None and _SENTENCE.fullmatch(line):
            outputs[-1][-1].sentence = line[:_LONGEST_SENTENCE]
    # Without its unit the last speed may have lost digits, too.
    cut = tail.cut and not last.endswith(("GB/s", ">"))
    runs = [NvlinkRun([seen.done() for seen in output], messages, cut) for output in outputs]
    return log_of(runs, messages)


def _link(number: int, text: str) -> NvlinkState:
    speed, unit = words.quantity(text.strip())
    return NvlinkState(number, speed if unit == "GB/s" and speed else None, text.strip().strip("<>"))


def _link_state(number: int, text: str) -> NvlinkState:
    """Return the state of a link that has a sentence in place of its line."""
    inactive = bool(_INACTIVE.fullmatch(text.strip()))
    return NvlinkState(number, None, "inactive" if inactive else text.strip(), not inactive)


# ``nvidia-smi nvlink -e``: the error counters of the links, of Hopper and older and of Blackwell.


_GPU_OF_ERRORS = re.compile(r"GPU (\d{1,3}): .*")
_LINE = re.compile(r"(?:Link (\d{1,3}): ?)?([A-Za-z][A-Za-z0-9 -]{1,60}): (\S{1,40})")
_BAD = re.compile(
    r"(?i)(?:replay|recovery|crc|malformed packet|buffer overrun|rx(?: remote| general)?|local link integrity"
    r"|effective|symbol) errors"
)
_FAILED = re.compile(r"(?i)link recovery failed events")
_BER = re.compile(r"(?i)effective ber")


@dataclass
class NvlinkErrors:
    """Counters since the driver was loaded; None where the GPU does not have such a counter."""

    number: int
    errors: int | None = None
    recovery_failed: int | None = None
    effective_ber: float | None = None


@dataclass
class NvlinkErrorsGpu:
    """One GPU and its links that were listed."""

    index: int
    links: list[NvlinkErrors] = field(default_factory=list)

    def total(self, name: str) -> int | None:
        """Return the sum over the links that have a counter."""
        counts = [value for value in (getattr(link, name) for link in self.links) if value is not None]
        return sum(counts) if counts else None

    @property
    def effective_ber(self) -> float | None:
        """Return the worst rate of all links."""
        return max((link.effective_ber for link in self.links if link.effective_ber is not None), default=None)


def parse(source: Source) -> list[NvlinkErrorsGpu]:
    """Return the GPUs that are listed; never raises, whatever the text."""
    gpus: list[NvlinkErrorsGpu] = []
    link: NvlinkErrors | None = None
    for line in lines(source):
        head = _GPU_OF_ERRORS.fullmatch(line)
        if head:
            gpus.append(NvlinkErrorsGpu(int(head.group(1))))
            link = None
            continue
        match = _LINE.fullmatch(line)
        if not gpus or match is None:
            continue
        if match.group(1) is not None and (link is None or link.number != int(match.group(1))):
            link = NvlinkErrors(int(match.group(1)))
            gpus[-1].links.append(link)
        if link is not None:
            _take(link, match.group(2).strip(), match.group(3))
    return gpus


def _take(link: NvlinkErrors, name: str, text: str) -> None:
    value = number(text.replace(",", ""))
    if value is None or value < 0:
        return
    if _BER.fullmatch(name):
        # 15e-255 is what a link shows that made no error.
        link.effective_ber = max(link.effective_ber or 0.0, float(value))
    elif _FAILED.fullmatch(name):
        link.recovery_failed = (link.recovery_failed or 0) + int(value)
    elif _BAD.fullmatch(name):
        link.errors = (link.errors or 0) + int(value)
