# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of nvidia-smi --query-gpu and --query-compute-apps in which errors stand in place of values.

The words are NVML's own for its errors (nvmlErrorString), which nvidia-smi sets between brackets in tables.
"""

from __future__ import annotations

import types
import typing as t
from pathlib import Path

import pytest
from stand_in import answer

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import bandwidth, test_tools_recipe, users
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks import Smi, SmiError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_module import SPEC, perform
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.hpl import run as hpl_run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.nvidia_smi_csv import parse_csv

ERRORS = ["[GPU is lost]", "[Unknown Error]", "ERR!", "[GPU requires reset]"]
SOUND = "0, GPU-aa, 00000000:07:00.0, H100, 580.95.05, Enabled, 1980, 2619, 1980, 2619, {a}, {a}, {a}, {a}, 0x0".format(
    a="[Requested functionality has been deprecated]"
)


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Callable[..., Path]:
    """Return a function that puts an nvidia-smi with this output and status on the PATH."""

    def write(*lines: str, status: int = 0) -> Path:
        program = answer(tmp_path / "nvidia-smi", "".join(f"{line}\n" for line in lines), status=status)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return program

    return write


def clocked(error: str, identity: bool) -> str:
    """A GPU whose clocks are errors; what it is known by comes from the driver's memory, or is an error as well."""
    known = "1, GPU-bb, 00000000:0B:00.0, H100, 580.95.05" if identity else ", ".join([error] * 4 + ["580.95.05"])
    return ", ".join([known, *[error] * 10])


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("identity", [True, False])
def test_a_gpu_whose_clocks_cannot_be_read_is_named_and_gets_no_command(
    smi: t.Callable[..., Path], tmp_path: Path, error: str, identity: bool
) -> None:
    """It had no maximum to be set to, so there was nothing to do for it, and all was well."""
    program = smi(SOUND, clocked(error, identity))
    asked = Smi(str(program), 5)
    assert [gpu.uuid for gpu in asked.query()] == ["GPU-aa"]
    bare = error.strip("[]")
    who = "GPU 1 at 00000000:0B:00.0" if identity else "GPU in row 2"
    field = "clocks.max.graphics" if identity else "index"
    assert asked.problem == f"{who} does not answer: {field} is {bare}"
    defaults = {name: option.get("default") for name, option in SPEC.items()}
    done = perform({**defaults, "program": str(program), "record": str(tmp_path / "record.json")}, dry=False)
    assert (done["check"]["verdict"], done["check"]["class"]) == ("error", "infra"), done["check"]
    assert bare in done["check"]["reason"]
    assert [command for command in done["commands"] if "00000000:07:00.0" not in command] == []


def test_no_gpu_that_answers_is_an_error_of_its_own(smi: t.Callable[..., Path]) -> None:
    with pytest.raises(SmiError, match=r"GPU 1 at 00000000:0B:00\.0 does not answer: clocks\.max\.graphics is Unknown"):
        Smi(str(smi(clocked("[Unknown Error]", True))), 5).query()


@pytest.mark.parametrize("missing", ["[N/A]", "[Not Supported]", "[Requested functionality has been deprecated]"])
def test_what_a_gpu_has_not_got_is_no_fault(smi: t.Callable[..., Path], missing: str) -> None:
    """A GPU in MIG mode and a virtual one show no clocks; they are there all the same."""
    asked = Smi(str(smi(SOUND, "1, GPU-bb, 00000000:0B:00.0, A100, 550.90.07, Enabled" + f", {missing}" * 9)), 5)
    assert [gpu.index for gpu in asked.query()] == [0, 1]
    assert asked.problem == ""


@pytest.mark.parametrize("error", [*ERRORS, "[N/A]"])
@pytest.mark.parametrize(
    "row", ["1, {e}, 00000000:0B:00.0", "{e}, {e}, {e}", "1, GPU-bb, {e}"], ids=["uuid", "all", "bus"]
)
def test_a_gpu_that_cannot_be_named_is_not_measured_and_not_left_out(
    smi: t.Callable[..., Path], tmp_path: Path, row: str, error: str
) -> None:
    """Without its UUID CUDA would take the next GPU for it; without its row nobody would miss it."""
    smi("0, GPU-aa, 00000000:07:00.0", row.format(e=error), "2, GPU-cc, 00000000:48:00.0")
    request = types.SimpleNamespace(sysfs=str(tmp_path), timeout=5.0, topology=None)
    topology, listed = bandwidth._here(t.cast("t.Any", request))
    assert listed is not None and [gpu.index for gpu in listed] == [0, 1, 2]
    for gpus in (bandwidth.plan(None, topology, listed), bandwidth.plan([0, 1, 2], None, listed)):
        assert [(gpu.index, bool(gpu.problem)) for gpu in gpus] == [(0, False), (1, True), (2, False)]
        assert (error.strip("[]") if error != "[N/A]" else "not shown") in gpus[1].problem


GPUS = "gpu, n1, GPU-aa, 0, H100\n"


@pytest.mark.parametrize("error", [*ERRORS, "[N/A]", "[Not Supported]"])
def test_processes_that_cannot_be_listed_are_not_no_processes(error: str) -> None:
    assert users.parse_users(f"{GPUS}user, n1, GPU-aa, {error}, {error}\n") is None
    assert users.parse_users(f"{GPUS}user, n1, {error}, {error}, {error}\n") is None
    assert users.parse_users(GPUS) == []


@pytest.mark.parametrize("error", ERRORS)
def test_a_process_on_a_gpu_without_a_name_may_be_on_any(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    said = f"{GPUS}user, n1, {error}, 77, python3\n"
    monkeypatch.setattr(users, "run", lambda *dummy: Outcome(0, said, "", 0.1))
    (user,) = users.read_users(Launch(), 5, chosen=[0]) or [None]
    assert user == users.User("n1", None, "", 77, "python3")
    assert users.in_use_message([user]) == "in use: GPU unknown of n1 by python3 (pid 77)"


@pytest.mark.parametrize("status", [0, 15])
@pytest.mark.parametrize("error", ERRORS)
def test_tools_are_built_for_the_gpus_that_answer(smi: t.Callable[..., Path], error: str, status: int) -> None:
    """One lost GPU ends nvidia-smi with 15: then they were built for no GPU in particular."""
    smi("9.0", error, "9.0", status=status)
    assert test_tools_recipe.gpus() == ["9.0"]
    smi("Unable to determine the device handle for GPU1: 0000:0B:00.0: GPU is lost", "9.0", status=status)
    assert test_tools_recipe.gpus() == ["9.0"]
    smi("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", status=9)
    assert test_tools_recipe.gpus() == []


@pytest.mark.parametrize("error", ERRORS)
def test_hpl_has_the_memory_of_the_smallest_gpu_that_answers(smi: t.Callable[..., Path], error: str) -> None:
    smi("81559", error, "40960", status=15)
    assert hpl_run._memory(5) == 40960


def test_a_row_keeps_its_errors_apart_from_what_does_not_exist() -> None:
    said: Json = {"index": "1", "uuid": "[GPU is lost]", "fan.speed": "[N/A]", "power.draw": "ERR!"}
    (row,) = parse_csv(", ".join(said.values()) + "\n", list(said)).runs[0].rows
    assert row.errors == {"uuid": "GPU is lost", "power.draw": "ERR!"}
    assert (row.fault(["index"], ["fan.speed"]), row.fault(["index", "uuid"])) == ("", "uuid is GPU is lost")
    assert row.fault(["index", "fan.speed"]) == "fan.speed is not shown"
    assert row.fault(["index"], ["power.draw"]) == "power.draw is ERR!"
