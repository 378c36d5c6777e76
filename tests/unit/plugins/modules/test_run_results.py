# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._run_file import RecordError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import TrustError
from ansible_collections.hpcai.gpu_cluster.plugins.modules.run_results import keep


def record(*stages: tuple[str, str]) -> dict[str, t.Any]:
    return {"schema": 1, "stages": [{"run": "awx-1", "stage": name, "start": start} for name, start in stages]}


def sent(folder: Path, document: t.Any) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(document))
    return {"run.json": str(folder / "run.json")}


def test_records_of_two_jobs_are_one_in_the_order_of_time(tmp_path: Path) -> None:
    there = str(tmp_path / "results")
    keep(there, sent(tmp_path / "a", record(("certify", "2026-01-02"))), 10)
    merged = keep(there, sent(tmp_path / "b", record(("configure", "2026-01-01"))), 10)
    assert [stage["stage"] for stage in merged["stages"]] == ["configure", "certify"]
    assert json.loads((tmp_path / "results/run.json").read_text()) == merged


def test_nobody_else_reads_what_is_kept(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("<p>")
    files = {**sent(tmp_path / "a", record()), "report.html": str(tmp_path / "report.html")}
    keep(str(tmp_path / "results"), files, 10)
    assert (tmp_path / "results").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "results/report.html").read_text() == "<p>"


def test_a_directory_that_others_could_exchange_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(TrustError):
        keep(str(tmp_path / "open/results"), sent(tmp_path / "a", record()), 10)
    assert not (tmp_path / "open/results").exists()


def test_a_record_that_is_none_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir(mode=0o750)
    (tmp_path / "results/run.json").write_text("half of")
    with pytest.raises(RecordError):
        keep(str(tmp_path / "results"), sent(tmp_path / "a", record()), 10)
    assert (tmp_path / "results/run.json").read_text() == "half of"
