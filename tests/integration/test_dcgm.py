# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dcgm_diag and dcgm_health against the emulated dcgmi, and the agent's checks by the same code."""

from __future__ import annotations

import json
import os
import sys
import typing as t

import pytest
from conftest import Cluster, Json

# The zipapp has a __main__ of its own; its imports are the agent's.
AGENT = (
    "from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import suite;"
    " import sys; sys.exit(suite.main(sys.argv[1:]))"
)


@pytest.fixture
def dcgm(cluster: Cluster) -> Cluster:
    cluster.add("dcgmi")
    return cluster


def diag(cluster: Cluster, **options: t.Any) -> Json:
    return cluster.checks("dcgm_diag", **{"gpus": 8, **options})["dcgm_diag"]


def health(cluster: Cluster, **options: t.Any) -> Json:
    return cluster.checks("dcgm_health", **options)["dcgm_health"]


@pytest.mark.parametrize("level", [1, 3])
def test_healthy(dcgm: Cluster, level: int) -> None:
    record = diag(dcgm, level=level)
    assert (record["verdict"], record["reason"]) == ("pass", "")
    assert record["context"]["version"] == "4.4.2-emulated"


def test_level_4_says_what_dcgm_skipped(dcgm: Cluster) -> None:
    record = diag(dcgm, level=4)
    assert (record["verdict"], record["reason"]) == ("pass", "not tested: eud")


def test_faulty_memory(dcgm: Cluster) -> None:
    dcgm.damage(ecc={"3": 2})
    assert diag(dcgm, level=1)["verdict"] == "pass"
    record = diag(dcgm, level=2)
    assert (record["verdict"], record["class"], record["scope"]) == ("fail", "hardware", {"gpu": [3]})
    assert (record["context"]["code"], record["context"]["action"]) == (52, "isolate")


def test_some_gpus_and_some_tests(dcgm: Cluster) -> None:
    dcgm.damage(ecc={"3": 2})
    result = dcgm.module("dcgm_diag", gpus=[2, 5], tests=["memtest", "pcie"])
    assert result["checks"][0]["verdict"] == "pass"
    assert {test["name"]: [one["id"] for one in test["results"]] for test in result["tests"]} == {
        "memtest": [2, 5],
        "pcie": [2, 5],
    }
    record = diag(dcgm, tests=["memory_of_elephants"])
    assert record["verdict"] == "error" and "were not found among possible test choices" in record["reason"]


@pytest.mark.parametrize("check", [diag, health])
def test_no_host_engine_is_skipped_and_none_is_started(dcgm: Cluster, check: t.Callable[..., Json]) -> None:
    dcgm.damage(dcgm="stopped")
    record = check(dcgm)
    assert record["verdict"] == "skipped" and "nv-hostengine" in record["reason"]


def test_a_host_engine_of_its_own_by_choice(dcgm: Cluster) -> None:
    dcgm.damage(dcgm="stopped")
    assert diag(dcgm, embedded=True)["verdict"] == "pass"


def test_another_diagnostic_runs(dcgm: Cluster) -> None:
    dcgm.damage(dcgm="busy")
    record = diag(dcgm)
    assert record["verdict"] == "skipped" and "already running" in record["reason"]


def test_a_missing_gpu_is_never_a_pass(dcgm: Cluster) -> None:
    dcgm.damage(missing_gpu=[5])
    record = diag(dcgm)
    assert record["verdict"] == "error" and "saw 7 of 8 GPUs" in record["reason"]


def test_without_dcgm(cluster: Cluster) -> None:
    record = diag(cluster, path="/nowhere/dcgmi")
    assert (record["verdict"], record["class"]) == ("error", "infra") and "/nowhere/dcgmi" in record["reason"]


def test_what_hangs_is_ended(dcgm: Cluster) -> None:
    dcgm.damage(hung=["dcgmi"])
    for check in (diag, health):
        record = check(dcgm, timeout=1)
        assert (record["verdict"], record["class"]) == ("error", "infra") and "did not end within 1 s" in record[
            "reason"
        ]


def test_a_job_on_the_gpus_is_left_alone(dcgm: Cluster) -> None:
    dcgm.damage(processes=[{"gpu": 4, "pid": os.getpid()}])
    assert diag(dcgm, level=1)["verdict"] == "pass"
    record = diag(dcgm, level=3)
    assert record["verdict"] == "skipped" and record["reason"].startswith("in use: GPU 4 of")


def test_through_slurm(dcgm: Cluster) -> None:
    dcgm.damage("c2", ecc={"1": 2})
    for host, verdict in (("c1", "pass"), ("c2", "fail")):
        record = diag(dcgm, launcher="srun", hosts=[host], name=host, level=2)
        assert (record["node"], record["verdict"]) == (host, verdict), record["reason"]


def test_the_variable_of_a_job_hides_no_gpu_and_prints_no_warning(dcgm: Cluster) -> None:
    dcgm.environment["CUDA_VISIBLE_DEVICES"] = "0,1"
    record = diag(dcgm)
    assert (record["verdict"], record["evidence"]) == ("pass", "")
    assert health(dcgm)["verdict"] == "pass"


def test_health(dcgm: Cluster) -> None:
    assert health(dcgm)["verdict"] == "pass"
    dcgm.damage(ecc={"3": 1}, hot={"5": 96})
    record = health(dcgm)
    assert (record["verdict"], record["class"], record["scope"]) == ("fail", "hardware", {"gpu": [3, 5]})
    dcgm.damage(hot={"5": 96})
    assert (health(dcgm)["verdict"], health(dcgm)["context"]["action"]) == ("warn", "monitor")


def test_watches_are_enabled_by_choice_and_once(dcgm: Cluster) -> None:
    dcgm.damage(dcgm="unwatched")
    assert "no health watch is enabled" in health(dcgm)["reason"]
    for check_mode in (True, False):
        result = dcgm.module("dcgm_health", check_mode, enable_watches=True)
        assert (result["changed"], result["checks"][0]["verdict"]) == (True, "skipped")
    result = dcgm.module("dcgm_health", enable_watches=True)
    assert (result["changed"], result["checks"][0]["verdict"]) == (False, "pass")


def agent(cluster: Cluster, suite: str, check: str, **config: t.Any) -> Json:
    spool = cluster.directory / "spool"
    spool.mkdir(exist_ok=True)
    profile = {"profile": "p", "gpu": {"count": 8}}
    raw = {"schema": 1, "node": "c1", "spool": str(spool), "profile": profile, **config}
    (cluster.directory / "agent.json").write_text(json.dumps(raw))
    place = ("--config", str(cluster.directory / "agent.json"), "--json", "--check", check)
    done = cluster.tool(sys.executable, "-c", AGENT, suite, *place, rc=None)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return next(record for record in records if record["check"] == check)


def test_the_agent_asks_for_health_where_dcgm_is_installed(dcgm: Cluster) -> None:
    assert agent(dcgm, "periodic", "dcgm_health")["verdict"] == "pass"
    dcgm.damage(ecc={"3": 1})
    record = agent(dcgm, "periodic", "dcgm_health")
    assert (record["verdict"], record["class"], record["context"]["action"]) == ("fail", "hardware", "isolate")
    dcgm.damage(dcgm="stopped")
    assert agent(dcgm, "periodic", "dcgm_health")["verdict"] == "skipped"
    dcgm.damage(hung=["dcgmi"])
    assert agent(dcgm, "periodic", "dcgm_health")["verdict"] == "error"


@pytest.mark.skipif(os.path.exists("/usr/bin/dcgmi"), reason="this machine has DCGM")  # noqa: PTH110
def test_the_agent_without_dcgm(cluster: Cluster) -> None:
    record = agent(cluster, "periodic", "dcgm_health")
    assert (record["verdict"], record["reason"]) == ("skipped", "DCGM is not installed: there is no dcgmi")


def test_the_agent_runs_the_diagnostic_by_choice(dcgm: Cluster) -> None:
    assert agent(dcgm, "full", "dcgm_diag")["verdict"] == "skipped"
    dcgm.damage(ecc={"3": 2})
    record = agent(dcgm, "full", "dcgm_diag", checks={"dcgm_diag": {"level": 2}})
    assert (record["verdict"], record["context"]["code"], record["scope"]) == ("fail", 52, {"gpu": [3]})
    record = agent(dcgm, "full", "dcgm_diag", checks={"dcgm_diag": {"level": 4}})
    assert record["verdict"] == "error" and "accepted are 1, 2, 3" in record["reason"]


def test_a_suite_beside_jobs_runs_level_1_and_no_other(dcgm: Cluster) -> None:
    for level, verdict in ((1, "pass"), (2, "error")):
        record = agent(dcgm, "periodic", "dcgm_diag", checks={"dcgm_diag": {"level": level}})
        assert record["verdict"] == verdict, record["reason"]
    assert "suite periodic runs beside jobs" in record["reason"]
