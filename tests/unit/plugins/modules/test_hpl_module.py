# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on an emulated NDv4, see lab/roles/lab_nodes/files/gpu_tools."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from stand_in import answer, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl import run
from ansible_collections.hpcai.gpu_cluster.plugins.modules import hpl
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules.module_process import (
    Emulated,
    Result,
    documented,
)

PROFILE = Emulated.profile


class Machine(Emulated):
    module = "hpl"
    prepare = (  # this machine may have a real one
        "from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl import run as run;"
        " run.PLACES = ('/nowhere/bin',)"
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "lab")
        self.shared = folder / "shared"
        self.shared.mkdir()
        self.launcher(8)

    def launcher(self, ranks: int) -> None:
        """Have a launcher that starts the emulated program once, as the first of so many ranks."""
        rank = f"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE={ranks} OMPI_COMM_WORLD_LOCAL_RANK=0"
        stand_in(self.bin / "mpirun", "step.sh", first="sh", variables=rank)

    def eight(self, **params: t.Any) -> Result:
        given = {"gpu_memory_mib": 40536, "directory": str(self.shared), "expect": PROFILE["expect"]}
        return self(launcher="mpirun", hosts=["gpu001"], ranks_per_node=8, **{**given, **params})


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_eight_gpus_of_one_node(machine: Machine) -> None:
    got = machine.eight(profile="nd96asr_v4", run="r1")
    (check,) = got["checks"]
    assert (check["check"], check["verdict"], check["node"], check["reason"]) == ("hpl", "pass", "gpu001", "")
    assert got["problem"] == {"n": 184320, "nb": 1024, "p": 4, "q": 2}
    assert (got["rows"][0]["n"], got["rows"][0]["variant"], got["residuals"][0]["passed"]) == (184320, "WC0", True)
    assert [m["name"] for m in check["metrics"]] == ["tflops", "tflops_per_gpu", "residual_failures"]
    assert got["dat"].splitlines()[5].startswith("184320 ")
    assert got["argv"][-5:-2] == ["sh", "-c", 'cd "$0" && exec "$@"'] and got["argv"][-1] == f"{machine.bin}/xhpl"
    assert got["environment"] == {"OMPI_MCA_coll_hcoll_enable": "0"}
    assert list(machine.shared.iterdir()) == []


def test_one_gpu_with_the_memory_that_nvidia_smi_tells(machine: Machine) -> None:
    got = machine()
    assert (got["problem"]["p"], got["problem"]["q"], got["checks"][0]["verdict"]) == (1, 1, "unjudged")
    assert 60000 < got["problem"]["n"] < 66000


def test_slow_and_wrong(machine: Machine) -> None:
    (check,) = machine.eight(faults={"slow_gpu": {"3": 0.7}})["checks"]
    assert (check["verdict"], check["class"]) == ("fail", "hardware") and "tflops" in check["reason"]
    (check,) = machine.eight(faults={"hpl_failed": True})["checks"]
    assert (check["verdict"], check["class"]) == ("fail", "hardware") and "residual_failures" in check["reason"]


def test_a_given_file_and_a_log(machine: Machine) -> None:
    dat, log = machine.shared / "HPL.dat", machine.shared / "out.log"
    dat.write_text(run.Problem(50176, 256, 1, 1).dat)
    got = machine(dat=str(dat), log=str(log))
    assert (got["rows"][0]["n"], got["problem"], got["dat"]) == (50176, None, None)
    assert "End of Tests." in log.read_text()
    assert dat.exists()
    (check,) = machine(dat=str(machine.shared / "none/HPL.dat"))["checks"]
    assert (check["verdict"], check["class"]) == ("error", "infra")


def test_too_few_ranks(machine: Machine) -> None:
    machine.launcher(2)
    (check,) = machine.eight()["checks"]
    assert (check["verdict"], check["class"]) == ("error", "infra")
    assert check["reason"] == ">>> Need at least 8 processes for these tests <<<"


def test_a_hang_ends_with_the_time_limit(machine: Machine) -> None:
    (check,) = machine.eight(faults={"hung": ["xhpl"]}, timeout=2)["checks"]
    assert (check["verdict"], check["class"]) == ("error", "infra")
    assert "did not end within 2 s" in check["reason"]
    assert list(machine.shared.iterdir()) == []


def test_nothing_runs_in_check_mode(machine: Machine) -> None:
    got = machine.eight(check_mode=True)
    assert (got["checks"][0]["verdict"], got["rows"], got["argv"]) == ("skipped", [], [])
    assert list(machine.shared.iterdir()) == []


def test_without_gpus(machine: Machine) -> None:
    none = {"missing_gpu": list(range(8))}
    assert machine(faults=none)["checks"][0]["verdict"] == "skipped"
    assert machine(faults=none, expect=PROFILE["expect"])["checks"][0]["verdict"] == "error"


def test_a_program_that_is_nowhere(machine: Machine) -> None:
    (machine.bin / "xhpl").unlink()
    (check,) = machine(n=5000)["checks"]
    assert check["verdict"] == "error"
    assert all(word in check["reason"] for word in ("hpl.sh or xhpl", "/nowhere/bin", "hpc-benchmarks"))
    assert check["context"]["missing"] == ["hpl.sh", "xhpl"]


def test_nvidias_container_through_slurm(machine: Machine) -> None:
    busy = "srun: error: Unable to allocate resources: Requested nodes are busy\n"
    answer(machine.bin / "srun", err=busy, status=1)
    got = machine(
        launcher="srun",
        hosts=["gpu-001"],
        ranks_per_node=8,
        container_image="nvcr.io#nvidia/hpc-benchmarks:24.03",
        gpu_memory_mib=40536,
        directory=str(machine.shared),
        cpu_masks=["ff"] * 8,
    )
    assert (got["checks"][0]["verdict"], got["checks"][0]["node"]) == ("skipped", "gpu-001")
    assert got["argv"][-3:-1] == ["/workspace/hpl.sh", "--dat"]
    folder = got["argv"][-1].rpartition("/")[0]
    assert f"--container-mounts={folder}:{folder}" in got["argv"]
    assert {"--container-image=nvcr.io#nvidia/hpc-benchmarks:24.03", "--mpi=pmix"} <= set(got["argv"])
    given = {"launcher": "srun", "n": 5000, "directory": str(machine.shared), "launcher_options": {"mpi": "pmi2"}}
    assert [word for word in machine(**given)["argv"] if word.startswith("--mpi")] == ["--mpi=pmi2"]


USED = {"processes": [{"gpu": 1, "pid": 4711}]}


def test_gpus_in_use_are_not_measured(machine: Machine) -> None:
    for got in (machine.eight(faults=USED), machine(faults=USED)):
        (check,) = got["checks"]
        assert (check["verdict"], check["class"], got["rows"], got["argv"]) == ("skipped", None, [], [])
        assert check["reason"].startswith("in use: GPU 1 of ") and "python3 (pid 4711)" in check["reason"]


def test_gpus_that_the_ranks_do_not_see_may_be_in_use(machine: Machine) -> None:
    assert machine(faults=USED, visible_devices=[0])["checks"][0]["verdict"] == "unjudged"
    assert machine(faults=USED, visible_devices=[1])["checks"][0]["verdict"] == "skipped"


def test_what_is_shared_is_held_against_no_limit(machine: Machine) -> None:
    (check,) = machine.eight(faults={**USED, "slow_gpu": {"5": 0.5}}, share_gpus=True)["checks"]
    assert (check["verdict"], check["class"]) == ("unjudged", None)
    assert check["reason"].startswith("no limit applies; in use: GPU 1 of ")


@pytest.mark.parametrize(
    "params, text",
    [
        ({"launcher": "mpirun", "n": 5000}, "needs directory"),
        ({"n": 5000, "directory": "/nowhere"}, "cannot be written in /nowhere"),
        ({"n": 5000, "p": 2}, "needs as many ranks"),
        ({"dat": "/x/other.dat"}, "of the name HPL.dat"),
    ],
)
def test_options_that_make_no_sense_fail(machine: Machine, params: dict[str, t.Any], text: str) -> None:
    got = machine(**params)
    assert got["failed"] and text in got["msg"]


def test_documentation_and_options_agree() -> None:
    assert documented(hpl) == {**_launch.SPEC, **run.SPEC}
