# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi nvlink -e``: the error counters of the links, of Hopper and older and of Blackwell.

Blackwell counts what its links correct in billions (FEC, raw errors): only what was not corrected is an error here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.text import Source, lines, number

_GPU = re.compile(r"GPU (\d{1,3}): .*")
_LINE = re.compile(r"(?:Link (\d{1,3}): ?)?([A-Za-z][A-Za-z0-9 -]{1,60}): (\S{1,40})")
_BAD = re.compile(
    r"(?i)(?:replay|recovery|crc|malformed packet|buffer overrun|rx(?: remote| general)?|local link integrity"
    r"|effective|symbol) errors"
)
_FAILED = re.compile(r"(?i)link recovery failed events")
_BER = re.compile(r"(?i)effective ber")


@dataclass
class Link:
    """Counters since the driver was loaded; None where the GPU does not have such a counter."""

    number: int
    errors: int | None = None
    recovery_failed: int | None = None
    effective_ber: float | None = None


@dataclass
class Gpu:
    """One GPU and its links that were listed."""

    index: int
    links: list[Link] = field(default_factory=list)

    def total(self, name: str) -> int | None:
        """Return the sum over the links that have a counter."""
        found = [value for value in (getattr(link, name) for link in self.links) if value is not None]
        return sum(found) if found else None

    @property
    def effective_ber(self) -> float | None:
        """Return the worst rate of all links."""
        return max((link.effective_ber for link in self.links if link.effective_ber is not None), default=None)


def parse(source: Source) -> list[Gpu]:
    """Return the GPUs that are listed; never raises, whatever the text."""
    gpus: list[Gpu] = []
    link: Link | None = None
    for line in lines(source):
        head = _GPU.fullmatch(line)
        if head:
            gpus.append(Gpu(int(head.group(1))))
            link = None
            continue
        match = _LINE.fullmatch(line)
        if not gpus or match is None:
            continue
        if match.group(1) is not None and (link is None or link.number != int(match.group(1))):
            link = Link(int(match.group(1)))
            gpus[-1].links.append(link)
        if link is not None:
            _take(link, match.group(2).strip(), match.group(3))
    return gpus


def _take(link: Link, name: str, text: str) -> None:
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
