# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent's suites hold: every check can be found, fits its suite, and leaves the records that it owes."""

from __future__ import annotations

import importlib
import json
import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import check, main, registry, suite

PLACE = Path(str(main.__file__)).parent
# Slurm's daemons answer one controller; a fleet that asks it every minute is what stops it.
SLURM = re.compile(r"[\"'](scontrol|sinfo|squeue|sacct|sacctmgr|srun|sdiag)[\"']")


def of(name: str) -> dict[str, check.AgentCheck]:
    return {one: found for one, found in registry.CHECKS.items() if name in found.suites}


@pytest.mark.parametrize("name", sorted(registry.CHECKS))
def test_every_check_is_there(name: str) -> None:
    found = registry.CHECKS[name]
    module, _colon, function = found.function.partition(":")
    assert callable(getattr(importlib.import_module(f"{registry.HOME}.{module}"), function))
    assert set(found.suites) <= set(check.SUITES)
    assert 0 < found.cost <= found.limit
    assert len(set(found.names)) == len(found.names)


@pytest.mark.parametrize("name", check.SUITES)
def test_a_suite_of_a_healthy_node_ends_in_half_of_its_budget(name: str) -> None:
    assert sum(found.cost for found in of(name).values()) <= registry.BUDGETS[name] / 2
    # One that hangs must leave time for the others.
    assert all(
        found.limit < registry.BUDGETS[name] - 0.7 or name in ("prolog", "epilog") for found in of(name).values()
    )


def test_a_prolog_is_done_in_a_moment_and_starts_no_program_that_may_hang() -> None:
    assert sum(found.cost for found in of("prolog").values()) <= 0.3
    assert "gpu" not in of("prolog") and "gpu_devices" in of("prolog") and "latches" in of("prolog")


def test_what_is_latched_is_told_by_every_suite() -> None:
    assert set(registry.CHECKS["latches"].suites) == set(check.SUITES)


def test_nothing_in_the_agent_asks_slurm() -> None:
    asking = [path.name for path in sorted(PLACE.glob("*.py")) if SLURM.search(path.read_text(encoding="utf-8"))]
    assert asking == []
    assert "slurmd" not in registry.CHECKS


def test_records_of_two_checks_have_different_names() -> None:
    names = [one for name in registry.CHECKS for one in registry.owed(name)]
    twice = {name for name in names if names.count(name) > 1}
    # The same question, asked of the own daemon before slurmd starts and of the controller later.
    assert twice <= {"munge"}


@pytest.mark.parametrize("name", check.SUITES)
def test_every_check_leaves_the_records_that_it_owes(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that has next to nothing: planned is reached, and nothing fails for what nobody expects."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    path = tmp_path / "agent.json"
    raw: dict[str, t.Any] = {"schema": 1, "node": "n1", "spool": str(tmp_path / "spool"), "shared_dir": str(tmp_path)}
    path.write_text(json.dumps(raw))
    (tmp_path / "spool").mkdir()
    suite.main([name, "--json", "--config", str(path), "--budget", "60"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    plan = registry.plan(check.load(path), name)
    owed = {one for each in plan.checks for one in registry.owed(each)}
    assert owed <= {one["check"] for one in records}
    crashed = [one for one in records if re.match(r"\w+(Error|Exception): ", one["reason"])]
    assert [one for one in crashed if "BrokenError" not in one["reason"]] == []


def test_a_suite_that_is_none_is_refused() -> None:
    """Its checks and budget would never count, and nobody would know."""
    with pytest.raises(check.ConfigError, match="perodic"):
        registry.plan(check.check({"schema": 1, "node": "n1", "suites": {"perodic": {"budget": 9}}}), "periodic")
