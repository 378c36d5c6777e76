# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of NVLink: links that are up, how GPUs are connected, what the fabric manager did. Pure, private."""

from __future__ import annotations

import itertools
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import metric
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.seen import Finding, Options, Seen, listing
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_topo import Run as Matrix

_NVLINK = re.compile(r"NV\d+")
Pair = t.Tuple[int, int]


def nvlink(seen: Seen, options: Options) -> Finding:
    """Count links; where most GPUs are all connected alike, one that is not is at fault."""
    found = _links(seen, options)
    broken = _fabric(seen) or _uneven(seen)
    return found if found.verdict in ("error", "skipped") or broken is None else _with(found, broken)


def _with(found: Finding, broken: Finding) -> Finding:
    return broken._replace(metrics=found.metrics, samples=found.samples)


def _links(seen: Seen, options: Options) -> Finding:
    if not seen.gpus:
        return Finding(verdict="error", reason=seen.problem("query"))
    shown = seen.reading.nvlink
    if shown is None and seen.reading.matrix and not _codes(seen.reading.matrix) and not options.expects("gpu_nvlink"):
        return Finding(verdict="skipped", reason="these GPUs have no NVLink")
    if shown is None:
        return Finding(verdict="error", reason=seen.problem("nvlink") or "nvidia-smi nvlink -s shows no GPU")
    active = {gpu.index: gpu.active for gpu in shown.gpus if gpu.links or gpu.all_inactive}
    samples = [
        {"gpu": gpu.index, "links": [link.gbps for link in gpu.links], "all_inactive": gpu.all_inactive}
        for gpu in shown.gpus
    ]
    metrics = [metric("links_active", active.get(index), "links", gpu=index) for index in seen.inventory.planned]
    return Finding(metrics, samples=samples)


def _fabric(seen: Seen) -> Finding | None:
    """GPUs behind NVSwitches cannot talk before the fabric manager has set them up; others have no state."""
    if len(seen.gpus) < 2:
        return None
    unready = {
        index: gpu.fabric
        for index, gpu in seen.gpus.items()
        if (gpu.fabric.state and gpu.fabric.state != "Completed") or gpu.fabric.status not in (None, "Success")
    }
    if unready:
        first = next(iter(unready.values()))
        told = f"state {first.state or 'unknown'}, status {first.status or 'unknown'}"
        reason = f"the NVLink fabric of {listing(unready)} is not ready: {told}; is nvidia-fabricmanager running?"
        return Finding(verdict="fail", reason=reason, blame="software", gpus=list(unready))
    ill = [index for index, gpu in seen.gpus.items() if gpu.fabric.health == "Unhealthy"]
    return (
        Finding(verdict="fail", reason=f"the NVLink fabric of {listing(ill)} is unhealthy", gpus=ill) if ill else None
    )


def _codes(matrix: Matrix) -> dict[Pair, str]:
    """Return the NVLink codes of pairs of GPUs."""
    return {
        (one.index, other.index): one.links[other.name]
        for one, other in itertools.combinations(matrix.gpus, 2)
        if one.index is not None and other.index is not None and _NVLINK.fullmatch(one.links.get(other.name, ""))
    }


def _uneven(seen: Seen) -> Finding | None:
    """Find what differs where more than half of the GPUs, and at least three, form a full mesh of one kind.

    Boards without switches (V100's cube, bridged pairs of PCIe cards) form none, so nothing is demanded of them.
    """
    matrix = seen.reading.matrix
    if matrix is None:
        return None
    codes = _codes(matrix)
    everyone = [gpu.index for gpu in matrix.gpus if gpu.index is not None]
    for code in sorted(set(codes.values()), key=list(codes.values()).count, reverse=True):
        bad = [pair for pair in itertools.combinations(everyone, 2) if codes.get(pair) != code]
        outsiders = _cover(bad)
        if len(everyone) - len(outsiders) > max(2, len(everyone) // 2):
            return _difference(matrix, code, bad, outsiders) if bad else None
    return None


def _cover(bad: t.Sequence[Pair]) -> list[int]:
    """Return few GPUs that all bad pairs have a part in, the worst first."""
    left, chosen = list(bad), []
    while left:
        ends = [index for pair in left for index in pair]
        worst = max(sorted(set(ends)), key=ends.count)
        chosen.append(worst)
        left = [pair for pair in left if worst not in pair]
    return chosen


def _difference(matrix: Matrix, code: str, bad: t.Sequence[Pair], outsiders: t.Sequence[int]) -> Finding:
    """One bad pair does not tell which of the two is to blame."""
    blamed = sorted({index for pair in bad for index in pair}) if len(bad) == 1 else sorted(outsiders)
    names = {gpu.index: gpu for gpu in matrix.gpus}
    seen = sorted({names[one].links.get(names[other].name, "?") for one, other in bad})
    pairs = f"{len(bad)} pair{'s' if len(bad) > 1 else ''} of GPUs"
    reason = f"{listing(blamed)}: {pairs} connected by {', '.join(seen)}, all others by {code}"
    return Finding(verdict="fail", reason=reason, gpus=blamed)
