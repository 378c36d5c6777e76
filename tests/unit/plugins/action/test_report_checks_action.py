# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import yaml
from ansible.errors import AnsibleActionFail

from ansible_collections.hpcai.gpu_cluster.plugins.action.report_checks import SPEC, ActionModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import record
from ansible_collections.hpcai.gpu_cluster.plugins.modules import report_checks
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.model import subject

CHECKS = [
    record("gpu_count", "c1", time=1793610000.0, verdict="pass"),
    record("nccl_tests", None, time=1793610010.0, verdict="fail", scope={"group": ["c1", "c2"]}),
]


def run(check_mode: bool = False, **args: t.Any) -> dict[str, t.Any]:
    task = SimpleNamespace(args=args, check_mode=check_mode, async_val=0, action="report_checks", environment=[])
    connection = MagicMock(_shell=SimpleNamespace(tmpdir=None))
    action = ActionModule(task, connection, MagicMock(), MagicMock(), MagicMock(), None)  # type: ignore[arg-type]
    return action.run(None, {})


def kept(folder: Path) -> dict[str, t.Any]:
    return json.loads((folder / "run.json").read_text())


def test_a_stage_with_its_checks_is_written(tmp_path: Path) -> None:
    result = run(dir=str(tmp_path / "reports"), stage="measure", checks=CHECKS, hosts=["c1", "c2"], sku="nd96asr_v4")
    found = kept(tmp_path / "reports")
    (stage,) = found["stages"]
    assert (stage["stage"], stage["state"], stage["hosts"]) == ("measure", "done", ["c1", "c2"])
    assert (stage["start"], stage["verdicts"]) == ("2026-11-02T09:00:00Z", {"fail": 1, "pass": 1})
    assert [(one["node"], one["run"]) for one in found["checks"]] == [("c1", result["run"]), (None, result["run"])]
    assert (found["sku"], result["changed"], result["path"]) == (
        "nd96asr_v4",
        False,
        str(tmp_path / "reports/run.json"),
    )
    assert result["bad"] == ["c[1-2] nccl_tests: fail"]
    assert len(result["lines"]) == 2


def test_a_page_of_no_cluster_is_named_after_its_hosts(tmp_path: Path) -> None:
    run(dir=str(tmp_path), stage="measure", checks=CHECKS, hosts=["c1", "c2"])
    assert kept(tmp_path)["cluster"] is None and subject(kept(tmp_path)) == "c1"
    run(dir=str(tmp_path), stage="measure", checks=CHECKS, hosts=["c1", "c2"], cluster="lab")
    assert kept(tmp_path)["cluster"] == subject(kept(tmp_path)) == "lab"


def test_a_host_that_failed_has_a_record_once(tmp_path: Path) -> None:
    failures = {"c1": "stopped", "c9": "not reached"}
    run(dir=str(tmp_path), stage="measure", checks=CHECKS, hosts=["c1", "c9"], failures=failures)
    found = kept(tmp_path)
    lost = [one for one in found["checks"] if one["check"] == "measure"]
    assert [(one["node"], one["verdict"], one["class"], one["reason"]) for one in lost] == [
        ("c9", "error", "infra", "not reached")
    ]
    assert (found["stages"][0]["state"], found["stages"][0]["failures"]) == ("failed", failures)


def test_earlier_runs_stay_and_are_limited(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        run(dir=str(tmp_path), stage="measure", checks=CHECKS, run=name, keep=2)
    assert [stage["run"] for stage in kept(tmp_path)["stages"]] == ["b", "c"]


def test_check_mode_writes_nothing(tmp_path: Path) -> None:
    assert run(check_mode=True, dir=str(tmp_path), stage="measure", checks=CHECKS)["verdicts"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("checks", [[{"check": "x"}], [{"verdict": "pass"}]])
def test_what_is_no_record_is_refused(tmp_path: Path, checks: list[dict[str, t.Any]]) -> None:
    with pytest.raises(AnsibleActionFail, match="Not a check record"):
        run(dir=str(tmp_path), stage="measure", checks=checks)


def test_a_damaged_run_record_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(AnsibleActionFail, match="not JSON"):
        run(dir=str(tmp_path), stage="measure", checks=CHECKS)
    assert (tmp_path / "run.json").read_text() == "{"


def test_the_documentation_says_what_the_specification_says() -> None:
    options = yaml.safe_load(report_checks.DOCUMENTATION)["options"]
    assert set(options) == set(SPEC)
    for name, option in SPEC.items():
        shown = {key: options[name].get(key) for key in ("type", "elements", "required", "default")}
        assert shown == {key: option.get(key) for key in shown}, name
