# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import shutil
import signal
import sys
import time
import typing as t
from pathlib import Path

import pytest
import yaml
from patience import patience
from stand_in import stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage import bandwidth
from ansible_collections.hpcai.gpu_cluster.plugins.modules import storage_bandwidth
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules import module_process
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules.module_process import documented

# Root may write anywhere by its capabilities; without them the mode of a directory holds for it, too.
WITHOUT_CAPABILITIES = """
import ctypes
version_3, all_empty = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capset(version_3, all_empty) == 0
"""
SMALL = {"size": "8M", "jobs": 2, "iodepth": 2, "runtime": 1}


class Machine(module_process.Machine):
    """A file system with data of somebody else, and a fio."""

    module = "storage_bandwidth"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.disk, self.log = folder / "disk", folder / "log"
        self.disk.mkdir()
        (self.disk / "data").write_text("precious")
        self.answer("good")

    def answer(self, word: str) -> None:
        (self.folder / "answer").write_text(word)
        stand_in(self.bin / "fio", "fio.py")

    def arguments(self, check_mode: bool = False, **params: t.Any) -> str:
        sent = {"paths": [str(self.disk)], "fio": str(self.bin / "fio"), **SMALL, **params}
        return super().arguments(check_mode, **sent)

    @property
    def starts(self) -> list[t.Any]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    @property
    def left(self) -> list[str]:
        return sorted(path.name for path in self.disk.iterdir())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_documentation_and_spec_agree() -> None:
    assert documented(storage_bandwidth) == bandwidth.SPEC
    assert {"checks", "results", "argv", "environment"} == set(yaml.safe_load(storage_bandwidth.RETURN))
    assert yaml.safe_load(storage_bandwidth.EXAMPLES)


def test_writes_and_reads_its_own_files_only(machine: Machine) -> None:
    got = machine()
    (check,) = got["checks"]
    assert (got["changed"], check["verdict"], check["context"]["version"]) == (False, "unjudged", "fio-3.99")
    assert [(m["name"], m["value"], m["unit"], m["path"]) for m in check["metrics"]] == [
        ("write", 4.0, "GB/s", str(machine.disk)),
        ("read", 4.0, "GB/s", str(machine.disk)),
    ]
    (first, mode, before), (second, same, files) = machine.starts
    assert (first["rw"], second["rw"], mode, same) == ("write", "read", "0o700", "0o700")
    assert first["directory"] == second["directory"] != str(machine.disk)
    assert (before, files) == ([], ["hpcai.0.0", "hpcai.1.0"])
    assert machine.left == ["data"]
    assert [one["argv"][3] for one in got["argv"]] == ["--rw=write", "--rw=read"]
    assert (got["environment"], "of the caller" in json.dumps(got)) == ({}, False)


def test_only_reads_are_reported_when_asked_for(machine: Machine) -> None:
    got = machine(operations=["read"])
    assert [row["operation"] for row in got["results"]] == ["read"]
    assert [options["rw"] for options, dummy, dummy in machine.starts] == ["write", "read"]


def test_judged(machine: Machine) -> None:
    limit = {
        "check": "storage_bandwidth",
        "metric": "read",
        "op": ">=",
        "value": 8,
        "unit": "GB/s",
        "source": "profile",
    }
    (check,) = machine(expect=[limit], name="gpu-001", profile="p", run="r")["checks"]
    assert (check["verdict"], check["class"], check["node"], check["run"]) == ("fail", "hardware", "gpu-001", "r")
    assert f"read (path={machine.disk}): 4 GB/s, expected >= 8" in check["reason"]


def test_check_mode_measures_nothing(machine: Machine) -> None:
    got = machine(check_mode=True)
    assert [(c["verdict"], c["reason"]) for c in got["checks"]] == [("skipped", "check mode")]
    assert (machine.starts, machine.left, got["changed"]) == ([], ["data"], False)


def test_a_failing_disk(machine: Machine) -> None:
    machine.answer("fail")
    (check,) = machine()["checks"]
    assert (check["verdict"], check["class"]) == ("fail", "hardware")
    assert (len(machine.starts), machine.left) == (1, ["data"])


def test_a_hanging_fio_is_ended_and_cleaned_up(machine: Machine) -> None:
    machine.answer("hang")
    (check,) = machine(timeout=2)["checks"]
    assert (check["verdict"], check["class"], machine.left) == ("error", "infra", ["data"])
    assert "did not end within 2 s" in check["reason"]


def test_nothing_is_left_when_the_module_is_ended(machine: Machine) -> None:
    machine.answer("hang")
    process = machine.start()
    for dummy in range(200):
        if len(machine.left) == 2 and machine.starts:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=patience(30))
    assert machine.left == ["data"]


@pytest.mark.parametrize(
    "params, says",
    [
        ({"fio": "/nowhere/fio"}, "/nowhere/fio"),
        ({"paths": ["/nowhere"]}, "/nowhere: no files can be made there: No such file or directory"),
        ({"size": "8388608G"}, "less than 10%"),
    ],
)
def test_what_this_machine_cannot_do_is_an_error(machine: Machine, params: dict[str, t.Any], says: str) -> None:
    (check,) = machine(**params)["checks"]
    assert (check["verdict"], check["class"]) == ("error", "infra")
    assert says in check["reason"]
    assert (machine.starts, machine.left) == ([], ["data"])


@pytest.mark.parametrize("params, says", [({"jobs": 0}, "jobs is 0"), ({"paths": [sys.executable]}, "is no directory")])
def test_options_that_make_no_sense_fail_the_module(machine: Machine, params: dict[str, t.Any], says: str) -> None:
    got = machine(**params)
    assert got["failed"]
    assert says in got["msg"]


def test_a_directory_that_may_not_be_written(machine: Machine) -> None:
    machine.prepare = WITHOUT_CAPABILITIES
    machine.disk.chmod(0o555)
    (check,) = machine()["checks"]
    assert (check["verdict"], "Permission denied" in check["reason"]) == ("error", True)


@pytest.mark.skipif(shutil.which("fio") is None, reason="needs fio")
@pytest.mark.parametrize("direct", [True, False])
def test_the_real_fio(machine: Machine, direct: bool) -> None:
    got = machine(fio=shutil.which("fio"), ioengine="psync", direct=direct)
    (check,) = got["checks"]
    assert machine.left == ["data"]
    if check["verdict"] == "error":  # a file system without O_DIRECT
        assert direct
        assert "direct=false" in check["reason"]
        return
    assert all(row["bandwidth"] > 0 and row["jobs"] == 2 and row["latency_us"] > 0 for row in got["results"])
    assert check["context"]["version"].startswith("fio-")
