# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.collective import payload, run

REQUEST = run.CollectiveRequest(2, 1, "gloo", ["all_reduce", "all_to_all"], 8, 64, 4, 5, 20)
CONTEXT = {"time": 1.0, "run": "r", "profile": "lab", "argv": ["srun"]}


def answer(hosts: t.Sequence[str] = ("c1", "c2"), busbw: float = 2.0, wrong: int = 0) -> str:
    rows = [
        {"collective": name, "size": size, "bytes": size, "time_us": 1.0, "algbw": 1.0, "busbw": busbw, "wrong": wrong}
        for name in REQUEST.operations
        for size in (8, 64)
    ]
    ranks = [{"rank": rank, "host": host, "machine": host} for rank, host in enumerate(hosts)]
    return payload.MARK + json.dumps({"rows": rows, "ranks": ranks, "torch": "2.13.0"})


def result(out: str, rc: int | None = 0, err: str = "", expect: t.Sequence[t.Any] = ()) -> dict[str, t.Any]:
    return run.result(Outcome(rc, out, err, 3.0), REQUEST, expect, CONTEXT)


@pytest.mark.parametrize(
    "arguments, want",
    [((8, 8, 4), [8]), ((8, 128, 4), [8, 32, 128]), ((8, 64, 4), [8, 32, 64]), ((8, 67108864, 4), 13)],
)
def test_sizes_end_with_the_largest(arguments: tuple[int, int, int], want: t.Any) -> None:
    got = payload.sizes(*arguments)
    assert got[-1] == arguments[1]
    assert want in (got, len(got))


@pytest.mark.parametrize(
    "operation, ranks, want",
    [("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_to_all", 2, 0.5), ("all_to_all", 4, 0.75)],
)
def test_bus_factor_is_that_of_nccl_tests(operation: str, ranks: int, want: float) -> None:
    assert payload.bus_factor(operation, ranks) == want


def test_row_uses_decimal_gigabytes() -> None:
    got = payload.row("all_reduce", 10**9, 250_000_000, 0.5, 4, 0)
    assert (got["algbw"], got["busbw"], got["time_us"]) == (2.0, 3.0, 500_000.0)


@pytest.mark.parametrize(
    "operation, size, ranks, want",
    [("all_reduce", 8, 3, 2), ("all_to_all", 8, 2, 2), ("all_to_all", 8, 3, 0), ("all_to_all", 32, 3, 6)],
)
def test_elements_divide_evenly(operation: str, size: int, ranks: int, want: int) -> None:
    assert payload.elements(operation, size, ranks) == want


@pytest.mark.parametrize(
    "hostlist, want",
    [
        ("c1", "c1"),
        ("c1,c2", "c1"),
        ("c[1-2]", "c1"),
        ("n[007-012,020]", "n007"),
        ("r[1-2]n[03,05]-ib,x1", "r1n03-ib"),
        ("", ""),
    ],
)
def test_first_host(hostlist: str, want: str) -> None:
    assert payload.first_host(hostlist) == want


def test_rendezvous_comes_from_the_step_and_can_be_overruled() -> None:
    env = {"SLURM_STEP_NODELIST": "c[1-2]", "SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
    got = payload.rendezvous({**env, "SLURM_LOCALID": "0", "MASTER_PORT": "5"})
    assert got == {"MASTER_ADDR": "c1", "MASTER_PORT": "5", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    assert payload.rendezvous(env)["MASTER_PORT"] == "61007"
    assert 61000 <= int(payload.rendezvous({**env, "SLURM_JOB_ID": "4000000"})["MASTER_PORT"]) <= 65535


def test_the_program_travels_as_text() -> None:
    compile(run.source(), "payload", "exec")
    assert "ansible" not in run.source()


def test_command() -> None:
    options = {"partition": None, "cpus_per_task": 2, "exclusive": True, "overlap": False, "job_name": "mine"}
    got = run.command("/usr/bin/srun", "/env/python", REQUEST, options, 90)
    assert " ".join(got) == (
        "/usr/bin/srun --job-name=mine --mpi=none --kill-on-bad-exit=1 --exclusive --immediate=60 --chdir=/ --time=3"
        " --cpus-per-task=2 --nodes=2 --ntasks-per-node=1 --ntasks=2 /env/python - --backend=gloo"
        " --operations all_reduce all_to_all --min-size=8 --max-size=64 --factor=4 --warmup=5 --iterations=20"
    )


@pytest.mark.parametrize("change", [{"nodes": 0}, {"min_size": 2}, {"max_size": 4}, {"factor": 1}, {"warmup": -1}])
def test_nonsense_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(run.CollectiveError):
        run.validate(REQUEST._replace(**change), [])


def test_a_good_result() -> None:
    got = result(f"noise\n{answer()}\n")
    assert [check["verdict"] for check in got["checks"]] == ["unjudged", "unjudged"]
    assert got["checks"][0]["context"]["collective"] == "all_reduce"
    assert got["checks"][0]["scope"] == {"group": ["c1", "c2"]}
    assert got["peak"] == {"all_reduce": 2.0, "all_to_all": 2.0}
    assert len(got["rows"]) == 4


@pytest.mark.parametrize("floor, want", [(1.0, "pass"), (3.0, "fail")])
def test_judged_per_collective(floor: float, want: str) -> None:
    expect = {"check": "collective_test", "metric": "busbw", "collective": "all_reduce", "size": 64, "nodes": 2}
    expect |= {"op": ">=", "value": floor, "unit": "GB/s", "source": "test"}
    got = result(answer(), expect=[expect])
    assert [check["verdict"] for check in got["checks"]] == [want, "unjudged"]
    assert got["checks"][0]["class"] == (None if want == "pass" else "fabric")


def test_wrong_numbers_fail_without_a_profile() -> None:
    got = result(answer(wrong=1))
    assert [(check["verdict"], check["class"]) for check in got["checks"]] == [("fail", "fabric")] * 2
    assert "wrong" in got["checks"][0]["reason"]


@pytest.mark.parametrize(
    "out, rc, err, reason",
    [
        ("", 0, "", "0 results"),
        (answer() + "\n" + answer(), 0, "", "2 results"),
        (payload.MARK + "{", 0, "", "cannot be read"),
        (payload.MARK + "{}", 0, "", "cannot be read"),
        (answer(("c1",)), 0, "", "2 ranks were asked for, 1 took part"),
        (answer(("c1", "c1")), 0, "", "all ranks ran on c1"),
        (answer(), 1, "srun: error: c2: task 1: Killed", "c2: task 1: Killed"),
        ("", None, "srun did not end within 600 s", "did not end"),
        (answer(busbw=1.0).replace("all_to_all", "other"), 0, "", "nothing was measured for all_to_all"),
    ],
)
def test_what_cannot_be_trusted_is_an_error_and_has_no_numbers(out: str, rc: int | None, err: str, reason: str) -> None:
    got = result(out, rc, err)
    assert [(check["verdict"], check["class"]) for check in got["checks"]] == [("error", "infra")] * 2
    assert all(reason in check["reason"] and not check["metrics"] for check in got["checks"])
    assert (got["rows"], got["peak"]["all_reduce"]) == ([], None)


def test_a_single_rank_is_skipped_with_a_reason() -> None:
    got = run.skip(REQUEST._replace(nodes=1), CONTEXT)
    assert [check["verdict"] for check in got["checks"]] == ["skipped", "skipped"]
    assert "nobody" in got["checks"][0]["reason"]


def test_busy_nodes_are_skipped_with_a_reason() -> None:
    got = run.skip(REQUEST._replace(nodes=1), {**CONTEXT, "busy": ["c1", "c2"]})
    assert [check["verdict"] for check in got["checks"]] == ["skipped", "skipped"]
    assert got["checks"][0]["reason"] == "too few nodes are idle; busy with jobs: c[1-2]"


@pytest.mark.parametrize(
    "text", ["Requested nodes are busy", "Immediate execution impossible, insufficient priority", "busy bee"]
)
def test_a_job_that_was_faster_is_no_error(text: str) -> None:
    got = result("", 1, f"srun: error: Unable to allocate resources: {text}\n")
    assert got["checks"][0]["verdict"] == ("error" if text == "busy bee" else "skipped")
    assert text in got["checks"][0]["reason"]


@pytest.mark.parametrize(
    ("once", "repeated"),
    [(0.001, (5, 20)), (0.2, (5, 20)), (0.4, (2, 10)), (4.0, (0, 2)), (600.0, (0, 2))],
    ids=["fast", "just within", "half as often", "slow", "hardly at all"],
)
def test_what_is_slow_is_repeated_less_often(once: float, repeated: tuple[int, int]) -> None:
    assert payload.repeats(once, 5, 20, limit=5) == repeated


def test_a_limit_is_on_the_command_line_and_cannot_be_negative() -> None:
    argv = run.command("srun", "python3", REQUEST._replace(seconds=5), {}, 60)
    assert argv[-1] == "--seconds=5"
    with pytest.raises(run.CollectiveError, match="seconds is -1"):
        run.validate(REQUEST._replace(seconds=-1), [])
