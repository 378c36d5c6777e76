# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import metaseq
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import opt
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import load

FIXTURES = Path(__file__).parents[3] / "fixtures/metaseq"
JOB = {"state": "COMPLETED", "job_id": 7, "exit_code": 0, "nodes": ["c1"]}


def read(name: str) -> t.Any:
    return metaseq.parse((FIXTURES / f"{name}.txt").read_text())


@pytest.mark.parametrize("model", [model for model in opt.SIZES if model != "8m"])
def test_models_have_the_size_of_their_names(model: str) -> None:
    named = float(model[:-1]) * {"m": 1e6, "b": 1e9}[model[-1]]
    assert opt.parameters(opt.SIZES[model]) == pytest.approx(named, rel=0.025)
    assert opt.SIZES[model].width % opt.SIZES[model].heads == 0


@pytest.mark.parametrize(
    "model, nodes, sequences, words",
    [("125m", 1, 64, 524288), ("125m", 16, 4, 524288), ("175b", 16, 64, 2 * 1024 * 1024), ("1.3b", 3, 42, 1032192)],
)
def test_plan(model: str, nodes: int, sequences: int, words: int) -> None:
    planned = opt.plan(model, nodes, 8)
    assert (planned["sequences_per_gpu"], planned["words_per_update"]) == (sequences, words)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("125m", 128, 8), "1024 GPUs are too many for 125m.*at most 512"),
        (("175b", 1, 4), "4 cannot be divided"),
        (("175b", 3, 4), "12 cannot be divided"),
        (("125m", 2, 1), "at least 2 GPUs in a node"),
        (("1t", 1, 8), "none of 8m, 125m"),
        (("125m", 0, 8), "nodes is 0"),
        (("125m", 1, True), "gpus_per_node is True"),
    ],
)
def test_gpus_that_cannot_train_it(arguments: t.Any, said: str) -> None:
    with pytest.raises(opt.OptError, match=said):
        opt.plan(*arguments)


def test_the_largest_plan_that_is_offered_is_one() -> None:
    assert opt.plan("125m", 64, 8)["sequences_per_gpu"] == 1


def judged(name: str, profile: str = "nd96amsr_a100_v4", model: str = "125m", **job: t.Any) -> t.Any:
    planned = opt.plan(model, 1, 8)
    expected = opt.expectations(load(profile)["expect"], model)
    return opt.check(read(name), planned, {**JOB, **job}, expected, time=0.0)


def values(check: t.Any) -> dict[str, t.Any]:
    return {item["name"]: (item["value"], item["verdict"]) for item in check["metrics"]}


def test_benchmark_is_held_against_its_machine_type() -> None:
    check = judged("benchmark-125m")
    assert check["verdict"] == "pass" and check["seconds"] == 148.3
    assert values(check)["words_per_second"] == (207000, "pass")
    assert values(check)["words_per_second_per_gpu"] == (25875, "unjudged")
    assert values(judged("benchmark-125m", "nd96isr_h100_v5"))["words_per_second"][1] == "unjudged"


@pytest.mark.parametrize(
    "job, verdict", [({"nodes": ["c1", "c2"]}, "unjudged"), ({"nodes": ["c1"]}, "pass"), ({"nodes": None}, "unjudged")]
)
def test_the_expectation_is_of_one_node(job: t.Any, verdict: str) -> None:
    assert values(judged("benchmark-125m", **job))["words_per_second"][1] == verdict


def test_another_model_is_not_held_against_it() -> None:
    assert values(judged("benchmark-125m", model="350m"))["words_per_second"][1] == "unjudged"


def test_a_speed_is_compared_with_what_was_published_for_the_gpu() -> None:
    planned, log = opt.plan("125m", 1, 8), read("benchmark-125m")
    check = opt.check(log, planned, JOB, [], time=0.0, gpu="A100-SXM4-80GB")
    assert values(check)["share_of_published"] == (pytest.approx(25875 / 141737), "unjudged")
    assert check["context"]["published"] == {"words_per_second_per_gpu": 141737, "source": opt.PUBLISHED_IN}
    for gpu in ("H100 80GB HBM3", "V100-SXM2-16GB", ""):
        assert "published" not in opt.check(log, planned, JOB, [], time=0.0, gpu=gpu)["context"]


def test_published_figures_are_of_models_and_gpus_that_we_know() -> None:
    gpus = {load(name)["gpu"]["model"] for name in ("nd96amsr_a100_v4", "nd96asr_v4", "nd96isr_h100_v5")}
    assert set(opt.PUBLISHED) == gpus
    for figures in opt.PUBLISHED.values():
        assert list(figures) == [model for model in opt.SIZES if model in figures]
        assert list(figures.values()) == sorted(figures.values(), reverse=True)


def test_job_that_failed() -> None:
    check = judged("diverged", state="FAILED", exit_code=1)
    assert check["verdict"] == "fail" and "update 10" in check["reason"]


def test_trainings_without_a_speed() -> None:
    assert judged("diverged")["verdict"] == "error"
    empty = opt.check(metaseq.parse(""), opt.plan("125m", 1, 8), JOB, [], time=0.0)
    assert (empty["verdict"], empty["reason"]) == ("error", "the log holds no training")
    cut = metaseq.parse((FIXTURES / "benchmark-125m.txt").read_text()[:-30])
    assert opt.check(cut, opt.plan("125m", 1, 8), JOB, [], time=0.0)["reason"] == "the training did not end"


def test_job_that_went_on_is_judged_by_its_last_run() -> None:
    log = read("resumed")
    check = opt.check(log, opt.plan("125m", 1, 8), JOB, [], time=0.0)
    assert values(check)["words_per_second"][0] == 310022.5
