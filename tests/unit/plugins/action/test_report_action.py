# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import yaml
from ansible.errors import AnsibleActionFail

from ansible_collections.hpcai.gpu_cluster.plugins.action.report import SPEC, ActionModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._run_file import store as store_run
from ansible_collections.hpcai.gpu_cluster.plugins.modules import report
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.plugin_utils.report_fleet import invented, store


def run(check_mode: bool = False, **args: t.Any) -> dict[str, t.Any]:
    task = SimpleNamespace(args=args, check_mode=check_mode, async_val=0, action="report", environment=[])
    connection = MagicMock(_shell=SimpleNamespace(tmpdir=None))
    action = ActionModule(task, connection, MagicMock(), MagicMock(), MagicMock(), None)  # type: ignore[arg-type]
    return action.run(None, {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run.json").write_text(
        '{"schema": 1, "checks": [{"run": "a", "node": "c", "check": "x", "verdict": "pass"}]}'
    )
    store(invented(5), tmp_path / "certification")
    return tmp_path


def test_files_are_written_and_returned(folder: Path) -> None:
    result = run(dir=str(folder), certification=str(folder / "certification"), formats=["html", "junit"])
    assert result["files"] == {"html": str(folder / "report.html"), "junit": str(folder / "report.xml")}
    assert all(Path(path).stat().st_mode & 0o777 == 0o644 for path in result["files"].values())
    assert (result["changed"], result["certificate"]) == (False, {"run": "20261121T210000Z", "before": 0})


def test_check_mode_reads_and_writes_nothing(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    assert run(check_mode=True, dir=str(folder), certification=str(folder / "certification"))["files"]
    assert sorted(folder.rglob("*")) == before


def test_without_a_certificate_the_run_is_drawn(folder: Path) -> None:
    assert run(dir=str(folder), name="page")["certificate"] is None
    assert "GPU cluster report" in (folder / "page.html").read_text()


def test_the_cluster_that_is_asked_for_is_drawn(folder: Path) -> None:
    for name in ("former", "latter"):
        store_run(folder / "run.json", {"cluster": name, "stages": [{"run": name, "stage": "train"}]}, keep=5)
    for words, title in ({}, "latter"), ({"cluster": "former"}, "former"):
        run(dir=str(folder), **words)
        assert f"<title>{title} · GPU cluster report" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    "broken, words", [("run.json", "run.json is not JSON"), ("certification/certificate.json", "cannot be read")]
)
def test_what_cannot_be_read_is_named(folder: Path, broken: str, words: str) -> None:
    (folder / broken).write_text("{")
    with pytest.raises(AnsibleActionFail, match=words):
        run(dir=str(folder), certification=str(folder / "certification"))


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AnsibleActionFail, match=r"neither .*run\.json"):
        run(dir=str(tmp_path))


def test_options_are_those_that_are_documented() -> None:
    told = yaml.safe_load(report.DOCUMENTATION)["options"]
    assert {name: {k: v for k, v in option.items() if k != "description"} for name, option in told.items()} == SPEC
