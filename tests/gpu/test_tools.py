# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role builds programs that work on these GPUs, and the parsers read what they print."""

from __future__ import annotations

import shutil
import typing as t

import pytest
from conftest import Role
from gpu_machine import Machine

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import bandwidth_test, nccl_tests, nvbandwidth

COPIES = ["host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_local_copy"]
COLLECTIVES = "all_reduce all_gather alltoall broadcast reduce_scatter sendrecv".split()


def program(role: Role, name: str) -> str:
    path = role.bin / name
    if not path.exists():
        pytest.skip(f"the role provided no {name}")
    return str(path)


def test_a_second_run_changes_nothing(role: Role) -> None:
    assert "changed=0" in role.apply()
    assert "changed=0" in role.apply("--check")


def test_the_proof_was_made_on_a_gpu(role: Role) -> None:
    """The lines that the role ends with come from the run that linked the tools; run it on a prefix of its own."""
    said = role.apply(
        gpu_test_tools_prefix=str(role.directory / "linked"),
        gpu_test_tools_origins=["image"],
        gpu_test_tools_image_dirs=[str(role.bin.resolve())],
        gpu_test_tools_list=["nccl_tests", "nvbandwidth"],
    )
    assert said.count("proof: measured") == 2, said


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_nccl_tests_on_all_gpus(role: Role, machine: Machine, collective: str) -> None:
    ranks = len(machine.gpus)
    said = machine.run(
        f"nccl_tests/{collective}-{ranks}-gpus",
        program(role, f"{collective}_perf"),
        *("-b", "8", "-e", "128M", "-f", "4", "-g", str(ranks)),
    )
    log = nccl_tests.parse(said.out)
    assert (said.rc, log.ok, log.cause) == (0, True, None), said.out + said.err
    [run] = log.runs
    assert (run.collective, run.ranks, run.nodes) == (collective, ranks, 1)
    assert run.complete and run.correct and run.largest.size > 120 << 20
    assert run.largest.out_of_place.algbw > 0.1
    assert (run.peak_busbw > 0) == (ranks > 1 or collective == "sendrecv" or collective == "broadcast")


def test_nccl_tests_writes_json_that_says_the_same(role: Role, machine: Machine) -> None:
    (machine.scratch / "all_reduce.json").unlink(missing_ok=True)
    said = machine.run(
        "nccl_tests/all_reduce-json",
        program(role, "all_reduce_perf"),
        *("-b", "1M", "-e", "64M", "-f", "2", "-g", str(len(machine.gpus)), "-J", "all_reduce.json"),
    )
    [text], [json] = (
        nccl_tests.parse(said.out).runs,
        nccl_tests.parse_json(machine.file("nccl_tests", "all_reduce.json")).runs,
    )
    assert [row.size for row in json.rows] == [row.size for row in text.rows]
    assert json.peak_busbw == pytest.approx(text.peak_busbw, rel=0.05, abs=0.01)


@pytest.mark.parametrize("launched", [True, False])
def test_a_build_with_mpi_makes_one_job_of_its_ranks_and_one_without_does_not(
    role: Role, machine: Machine, launched: bool
) -> None:
    mpirun = shutil.which("mpirun")
    if not mpirun or len(machine.gpus) < 2:
        pytest.skip("needs mpirun on PATH and two GPUs")
    name = "all_reduce_perf_mpi" if launched else "all_reduce_perf"
    said = machine.run(
        f"nccl_tests/mpirun-{name}",
        mpirun,
        "-np",
        "2",
        "--allow-run-as-root",
        "--tag-output",
        program(role, name),
        *("-b", "1M", "-e", "16M", "-f", "2", "-g", "1"),
    )
    ranks = {run.ranks for run in nccl_tests.parse(said.out).runs}
    assert ranks == ({2} if launched else {1}), said.out + said.err


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("bad-option", ["-q", "4"]),
        ("too-many-gpus", ["-g", "99"]),
        ("bad-size", ["-b", "4T", "-e", "4T"]),  # it knows K, M and G; more than the memory holds is made less
    ],
)
def test_nccl_tests_that_fails_is_never_ok(role: Role, machine: Machine, name: str, arguments: list[str]) -> None:
    said = machine.run(f"nccl_tests/{name}", program(role, "all_reduce_perf"), *arguments)
    assert not nccl_tests.parse(said.out + said.err).ok


@pytest.mark.parametrize(("form", "options"), [("text", []), ("verbose", ["-v"]), ("json", ["-j"])])
def test_nvbandwidth_in_every_form(role: Role, machine: Machine, form: str, options: list[str]) -> None:
    said = machine.run(f"nvbandwidth/copies-{form}", program(role, "nvbandwidth"), *options, "-t", *COPIES)
    log = nvbandwidth.parse(said.out)
    assert (said.rc, log.ok, log.cause) == (0, True, None), said.out + said.err
    tests = {test.name: test for run in log.runs for test in run.tests}
    assert sorted(tests) == sorted(COPIES)
    for test in tests.values():
        values = [value for row in test.matrices[0] for value in row if value is not None]
        assert len(values) == len(machine.gpus) and test.unit == "GB/s"
        assert all(1 < value < 20000 for value in values), (test.name, values)


@pytest.mark.parametrize(("form", "options"), [("text", []), ("json", ["-j"])])
def test_nvbandwidth_refuses_an_unknown_test(role: Role, machine: Machine, form: str, options: list[str]) -> None:
    said = machine.run(f"nvbandwidth/unknown-test-{form}", program(role, "nvbandwidth"), *options, "-t", "nosuch")
    assert not nvbandwidth.parse(said.out + said.err).ok


@pytest.mark.parametrize(("form", "options"), [("text", []), ("csv", ["--csv"]), ("shmoo", ["--mode=shmoo", "--htod"])])
def test_bandwidth_test_where_the_image_has_it(role: Role, machine: Machine, form: str, options: list[str]) -> None:
    said = machine.run(f"bandwidth_test/{form}", program(role, "bandwidthTest"), "--device=0", *options)
    log = bandwidth_test.parse(said.out)
    assert (said.rc, log.ok) == (0, True), said.out + said.err


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("query-xml", ["-q", "-x"]),
        ("query", ["-q"]),
        ("topo", ["topo", "-m"]),
        ("nvlink", ["nvlink", "-s"]),
        ("list", ["-L"]),
        ("bad-field", ["--query-gpu=nosuch", "--format=csv"]),
    ],
)
def test_nvidia_smi_answers(machine: Machine, name: str, arguments: t.Sequence[str]) -> None:
    said = machine.run(f"nvidia_smi/{name}", "nvidia-smi", *arguments)
    # A virtual machine with one GPU of an NVSwitch board has no NVLink, and R580 has no word about it.
    assert said.out.strip() or (name, said.rc, len(machine.gpus)) == ("nvlink", 0, 1)
