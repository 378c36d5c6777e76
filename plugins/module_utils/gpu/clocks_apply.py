# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring the clocks of all GPUs to what is asked for, and see by query what that led to. Private.

Clocks are locked where a GPU has locks and shows that it follows them, and set as application clocks elsewhere.
"""

from __future__ import annotations

import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks import Entry, Request
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_one import One
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_record import Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_smi import Smi

_POLL = 0.25


def apply(
    smi: Smi,
    record: Record,
    request: Request,
    only: t.Collection[int] | None = None,
    settle: float = 3.0,
    dry: bool = False,
) -> list[One]:
    """Return what came of the request for each GPU; ``only`` are indexes. Raises SmiError when none can be seen."""
    gpus = [gpu for gpu in smi.query() if only is None or gpu.index in only]
    driver = gpus[0].driver if gpus else ""
    remembered = record.load(driver)
    every = [One(gpu, remembered.get(gpu.uuid), request) for gpu in gpus]
    todo = [one for one in every if one.needed]
    if dry or not todo:
        return every
    for one in todo:
        one.send(smi)
    _see(smi, todo, settle)
    fallen = [one for one in todo if one.fall_back(smi)]
    if fallen:
        _see(smi, todo, settle)
    for one in todo:
        one.finish()
    changes = {one.gpu.uuid: one.entry for one in todo if one.entry != remembered.get(one.gpu.uuid, Entry())}
    try:
        record.save(driver, changes)
    except OSError as exc:
        smi.problem = f"what was set cannot be kept in {record.path}: {exc.strerror}"
    return every


def _see(smi: Smi, todo: t.Sequence[One], settle: float) -> None:
    """Look until every clock shows what was set, but no longer than told: a clock needs a moment to move."""
    until = time.monotonic() + settle
    while True:
        now = {gpu.uuid: gpu for gpu in smi.query()}
        for one in todo:
            one.gpu = now.get(one.gpu.uuid, one.gpu)
        if all(one.settled() for one in todo) or time.monotonic() >= until:
            return
        time.sleep(_POLL)
