# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import tempfile
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl.run import Problem
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import hpl

FIXTURES = Path(__file__).parents[3] / "fixtures" / "hpl"
NVIDIA = Problem(264192, 1024, 4, 2)
FLOOR = {"check": "hpl", "metric": "tflops", "op": ">=", "value": 95, "unit": "TFLOP/s", "nodes": 1, "source": "test"}
PEAK = {
    "check": "hpl",
    "metric": "tflops_per_gpu",
    "op": "<=",
    "value": 19.5,
    "unit": "TFLOP/s",
    "source": "data sheet",
}
PARAMS = {name: option.get("default") for name, option in {**_launch.SPEC, **run.SPEC}.items()}
PARAMS["expect"] = []


def read(name: str) -> str:
    return (FIXTURES / name).read_text()


def found(text: str, wanted: Problem | None = None, rc: int | None = 0, err: str = "") -> run.HplFinding:
    return run.read(hpl.parse(f"{text}\n{err}"), Outcome(rc, text, err, 1.0), wanted)


def judge(text: str, expect: t.Sequence[t.Any] = (), gpus: int | None = 8, nodes: int = 1) -> dict[str, t.Any]:
    common = {"node": "n1", "time": 1.0, "context": {}}
    return run.judged(found(text), gpus, nodes, expect, common)


@pytest.mark.parametrize(
    "gpus, mib, nb, fraction, want",
    [
        (1, 40536, 1024, 0.8, 64512),
        (8, 40536, 1024, 0.8, 184320),
        (8, 81559, 1024, 0.8, 261120),
        (8, 81559, 1024, 0.9, 276480),
        (2, 1, 64, 1.0, 512),
        (1, 1, 1024, 1.0, 0),
    ],
)
def test_n_fills_its_part_of_the_memory_in_whole_blocks(
    gpus: int, mib: int, nb: int, fraction: float, want: int
) -> None:
    memory = gpus * mib * run.MIB
    got = run.order(memory, nb, fraction)
    assert got == want and got % nb == 0
    assert got**2 * 8 <= fraction * memory < (got + nb) ** 2 * 8


@pytest.mark.parametrize(
    "ranks, p, q, want",
    [
        (1, None, None, (1, 1)),
        (2, None, None, (2, 1)),
        (8, None, None, (4, 2)),
        (16, None, None, (4, 4)),
        (7, None, None, (7, 1)),
        (24, None, None, (6, 4)),
        (8, 2, None, (2, 4)),
        (8, None, 1, (8, 1)),
        (8, 2, 4, (2, 4)),
    ],
)
def test_grid(ranks: int, p: int | None, q: int | None, want: tuple[int, int]) -> None:
    assert run.grid(ranks, p, q) == want


@pytest.mark.parametrize("p, q", [(3, None), (None, 5), (2, 2), (16, None)])
def test_a_grid_that_does_not_fit_the_ranks_is_refused(p: int | None, q: int | None) -> None:
    with pytest.raises(run.HplError, match="needs as many ranks, not 8"):
        run.grid(8, p, q)


def test_dat_has_the_lines_where_hpl_reads_them() -> None:
    lines = NVIDIA.dat.splitlines()
    assert len(lines) == 31
    assert [lines[index].split()[0] for index in (3, 4, 5, 6, 7, 9, 10, 11, 12)] == (
        ["6", "1", "264192", "1", "1024", "1", "4", "2", "16.0"]
    )


@pytest.mark.parametrize(
    "change, launch, memory, want",
    [
        ({"n": 5000, "nb": 256}, Launch(), None, Problem(5000, 256, 1, 1)),
        ({}, Launch(), 40536, Problem(64512, 1024, 1, 1)),
        (
            {"gpu_memory_mib": 40536},
            Launch(kind="srun", nodes=2, ranks_per_node=8),
            None,
            Problem(260096, 1024, 4, 4),
        ),
        ({"gpu_memory_mib": 40536, "gpus": 4}, Launch(), None, Problem(130048, 1024, 1, 1)),
        ({"dat": "/x/HPL.dat"}, Launch(), 40536, None),
        ({}, Launch(), None, None),
    ],
)
def test_problem(change: dict[str, t.Any], launch: Launch, memory: int | None, want: Problem | None) -> None:
    assert run.plan(run.read_request({**PARAMS, **change})._replace(launch=launch), memory) == want


def test_a_problem_of_less_than_a_block_is_refused() -> None:
    with pytest.raises(run.HplError, match="less than one block"):
        run.plan(run.read_request({**PARAMS, "n": 500}), None)


@pytest.mark.parametrize(
    "change, launch",
    [
        ({"n": 0}, Launch()),
        ({"nb": -1}, Launch()),
        ({"timeout": 0}, Launch()),
        (
            {
                "expect": [
                    {"check": "hpl", "metric": "tflops", "op": ">=", "value": 1, "unit": "GiB/s", "source": "test"}
                ]
            },
            Launch(),
        ),
        ({"timeout": float("inf")}, Launch()),
        ({"timeout": float("nan")}, Launch()),
        ({"memory_fraction": 1.5}, Launch()),
        ({"dat": "/x/HPL.dat", "n": 5}, Launch()),
        ({"p": 2}, Launch()),
        ({"n": 5000}, Launch(kind="srun")),
        ({"expect": [{"check": "hpl"}]}, Launch()),
    ],
)
def test_nonsense_is_refused(change: dict[str, t.Any], launch: Launch) -> None:
    run.with_launch(run.read_request(PARAMS), Launch())
    with pytest.raises(ValueError):
        run.with_launch(run.read_request({**PARAMS, **change}), launch)


def test_command_lines() -> None:
    assert run.arguments("/workspace/hpl.sh", "/s/HPL-8.dat", ["--gpu-affinity", "0"]) == (
        ["/workspace/hpl.sh", "--dat", "/s/HPL-8.dat", "--gpu-affinity", "0"]
    )
    assert run.arguments("/opt/xhpl", "/s/HPL.dat", []) == ["sh", "-c", 'cd "$0" && exec "$@"', "/s", "/opt/xhpl"]
    with pytest.raises(run.HplError, match="of the name HPL"):
        run.arguments("/opt/xhpl", "/s/HPL-8.dat", [])


def test_a_good_run_passes() -> None:
    record = judge(read("nvidia.txt"), [FLOOR, PEAK])
    assert (record["verdict"], record["class"], record["reason"]) == ("pass", None, "")
    assert [(m["name"], m["value"], m["unit"]) for m in record["metrics"]] == [
        ("tflops", 113.9, "TFLOP/s"),
        ("tflops_per_gpu", 14.24, "TFLOP/s"),
        ("residual_failures", 0, "tests"),
    ]
    assert record["samples"][0]["n"] == 264192


def test_a_right_solution_at_a_speed_nobody_compared_is_unjudged() -> None:
    assert judge(read("nvidia.txt"))["verdict"] == "unjudged"
    assert judge(read("nvidia.txt"), [FLOOR], nodes=2)["verdict"] == "unjudged"


def test_slow_is_a_fail_of_the_hardware() -> None:
    record = judge(read("nvidia.txt"), [{**FLOOR, "value": 120}])
    assert (record["verdict"], record["class"], record["reason"]) == (
        "fail",
        "hardware",
        "tflops: 113.9 TFLOP/s, expected >= 120",
    )


@pytest.mark.parametrize("name", ["nvidia-failed.txt", "captured-failed.txt"])
def test_a_wrong_solution_fails_although_the_status_is_0(name: str) -> None:
    record = judge(read(name), [{**FLOOR, "value": 0.01}])
    assert (record["verdict"], record["class"]) == ("fail", "hardware")
    assert record["reason"] == "residual_failures: 1 tests, expected == 0"


def test_a_speed_above_the_peak_is_a_misread_not_a_broken_gpu() -> None:
    record = judge(read("nvidia.txt"), [FLOOR, {**PEAK, "value": 9.7}])
    assert (record["verdict"], record["class"]) == ("error", "infra")
    assert record["reason"].endswith("tflops_per_gpu is above what the hardware can do: a misread")
    assert not any("misread" in item for item in record["metrics"])


def test_without_gpus_there_is_no_speed_of_one() -> None:
    record = judge(read("captured-passed.txt"), gpus=None)
    assert [m["name"] for m in record["metrics"]] == ["tflops", "residual_failures"]
    assert record["metrics"][0]["value"] == pytest.approx(0.079998)
    record = judge(read("captured-passed.txt"), gpus=4)
    assert record["metrics"][1]["value"] == pytest.approx(0.0199995)
    assert judge(read("captured-passed.txt"), [PEAK], gpus=None)["verdict"] == "error"


@pytest.mark.parametrize(
    "text, rc, err, problem",
    [
        (read("captured-cut.txt"), 137, "", "exit status 137"),
        (read("captured-cut.txt"), None, "xhpl did not end within 60 s", "xhpl did not end within 60 s"),
        (read("captured-cut.txt"), 0, "", "the output of HPL breaks off"),
        (read("captured-no-memory.txt"), 0, "", ">>> [0,1] Memory allocation failed for A, x and b. Skip. <<<"),
        ("", 139, read("captured-no-input.stderr.txt"), ">>> cannot open file HPL.dat <<<"),
        ("", 1, read("captured-too-few-processes.stderr.txt"), ">>> Need at least 4 processes for these tests <<<"),
        ("", 0, "", "HPL printed no result"),
        ("HPLinpack 2.3  --  High", 0, "", "HPL printed no row; HPL.dat may send it to a file"),
        (read("nvidia.txt") * 2, 0, "", "HPL printed 2 results instead of one"),
        (read("hpl-mxp.txt"), 0, "", "HPL-MxP computes in mixed precision; its speed is no HPL result"),
        (read("hpl-ai.txt"), 0, "", "HPL-AI computes in mixed precision; its speed is no HPL result"),
        (read("nvidia.txt").replace("||Ax-b||_oo/", "").replace("1 tests completed and passed residual checks", "x"),
         0, "", "HPL did not check its solution"),
        (read("nvidia.txt").replace("1.139e+05 ( 1.424e+04)", "1.139e+06 ( 1.424e+05)"),
         0, "", "HPL printed 1.139e+06 Gflops, but n 264192 in"),
        (read("nvidia.txt").replace("1.424e+04", "1.139e+05"),
         0, "", "HPL printed 113900 Gflops and 113900 per GPU, which does not fit 8 ranks"),
    ],
)  # fmt: skip
def test_what_is_not_believed(text: str, rc: int | None, err: str, problem: str) -> None:
    got = found(text, None, rc, err)
    assert got.row is None and got.problem.startswith(problem)
    record = run.judged(got, 8, 1, [FLOOR], {"node": "n1", "time": 1.0, "context": {}})
    assert (record["verdict"], record["class"]) == ("error", "infra")
    assert record["reason"].startswith(problem)
    assert record["metrics"][0]["value"] is None


def test_another_problem_than_the_one_asked_for_is_refused() -> None:
    assert found(read("nvidia.txt"), NVIDIA).problem == ""
    got = found(read("nvidia.txt"), NVIDIA._replace(n=1024))
    assert got.problem == "HPL solved n 264192, nb 1024, p 4, q 2, not n 1024, nb 1024, p 4, q 2"


def test_a_good_result_of_a_program_that_then_failed_is_an_error() -> None:
    got = found(read("nvidia.txt"), NVIDIA, 139, "Segmentation fault")
    assert got.row and got.problem == "Segmentation fault"
    assert found(read("nvidia.txt"), NVIDIA, 1, "x").problem == "exit status 1: x"


def test_a_memory_error_of_a_gpu_is_a_fail() -> None:
    text = "HPLinpack 2.1  --  x\n[CUDA_ERROR_ECC_UNCORRECTABLE] uncorrectable ECC error encountered\n"
    record = judge(text)
    assert (record["verdict"], record["class"]) == ("fail", "hardware")


@pytest.mark.parametrize(
    "there, want",
    [(["hpl.sh", "xhpl"], "hpl.sh"), (["xhpl"], "xhpl"), ([], "xhpl")],
    ids=["script", "program", "nothing"],
)
def test_of_a_directory_the_same_program_is_taken_on_one_node_and_on_several(
    tmp_path: Path, there: list[str], want: str
) -> None:
    for name in there:
        (tmp_path / name).touch(0o755)
    for launch in (Launch("srun", nodes=2), Launch("mpirun", nodes=2)):
        assert run._program(run.HplRequest(path=f"{tmp_path}/", launch=launch)) == f"{tmp_path}/{want}"
    if there:
        assert run._program(run.HplRequest(path=str(tmp_path))) == f"{tmp_path}/{want}"


@pytest.mark.skipif(os.geteuid() != 0, reason="files of two users need root")
@pytest.mark.parametrize("exchange", ["link", "file", "directory"])
def test_what_a_user_puts_into_the_place_of_the_run_s_directory_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: str
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "HPL.dat").write_text("root's")
    real = tempfile.mkdtemp

    def exchanged(prefix: str, dir: str) -> str:
        work = Path(real(prefix=prefix, dir=dir))
        if exchange == "file":
            (work / "HPL.dat").symlink_to(victim / "HPL.dat")
            return str(work)
        work.rmdir()
        if exchange == "link":
            work.symlink_to(victim)
        else:
            work.mkdir()
            os.chown(work, 65534, 65534)
        return str(work)

    monkeypatch.setattr(tempfile, "mkdtemp", exchanged)
    reasons = r"File exists|Not a directory|Too many levels|belongs to uid 65534"
    with pytest.raises(run.HplError, match=reasons), run._work(str(tmp_path), run.Problem(1024, 64, 1, 1)):
        pass
    assert (victim / "HPL.dat").read_text() == "root's"
