# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import importlib

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import parsers
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, Log, log_of

CAUSE, LATER = Cause("NCCL WARN", "fabric"), Cause("exit 1", "software")


@dataclasses.dataclass(frozen=True)
class Run:
    ok: bool
    cause: Cause | None = None


@pytest.mark.parametrize(
    "runs, cause, ok",
    [
        ([], None, False),
        ([], CAUSE, False),
        ([Run(True)], None, True),
        ([Run(True), Run(False)], None, False),
        ([Run(True)], CAUSE, False),
    ],
)
def test_ok_leaves_no_doubt(runs: list[Run], cause: Cause | None, ok: bool) -> None:
    log = Log(runs, cause)
    assert log.ok is ok
    assert list(dataclasses.asdict(log)) == ["runs", "cause", "ok"]


def test_what_belongs_to_no_run_comes_first() -> None:
    assert log_of([Run(False, LATER)], [CAUSE]).cause == CAUSE
    assert log_of([Run(False, LATER), Run(True)]).cause == LATER


@pytest.mark.parametrize("name", ["bandwidth_test", "fio", "hpl", "nccl_tests", "nvbandwidth", "perftest"])
def test_all_parsers_return_it(name: str) -> None:
    parser = importlib.import_module(f"{parsers.__name__}.{name}")
    assert parser.parse("") == Log([], None)
