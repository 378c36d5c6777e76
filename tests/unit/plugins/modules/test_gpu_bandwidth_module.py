# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module on an emulated NDv4, see lab/roles/lab_nodes/files/gpu_tools."""

from __future__ import annotations

import json
import re
import signal
import time
import typing as t
from pathlib import Path

import pytest
from patience import patience
from stand_in import answer, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import bandwidth
from ansible_collections.hpcai.gpu_cluster.plugins.modules import gpu_bandwidth
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.modules.module_process import (
    Emulated,
    Result,
    documented,
    running,
)

PROFILE = Emulated.profile
NODES = [1, 1, 0, 0, 3, 3, 2, 2]


class Machine(Emulated):
    module = "gpu_bandwidth"
    prepare = (  # this machine may have the real ones
        "from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import bandwidth as argv;"
        " argv.PLACES = dict.fromkeys(argv.PLACES, ('/nowhere/bin',))"
    )

    def __call__(self, check_mode: bool = False, faults: t.Any = None, **params: t.Any) -> Result:
        return super().__call__(check_mode, faults, **{"sysfs": str(self.folder / "sys/sound"), **params})


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_eight_gpus_each_on_its_own_numa_node(machine: Machine) -> None:
    got = machine(expect=PROFILE["expect"], profile="nd96asr_v4", run="r1", name="gpu001")
    (check,) = got["checks"]
    assert (check["check"], check["verdict"], check["scope"], check["node"], check["run"]) == (
        "gpu_bandwidth",
        "pass",
        {},
        "gpu001",
        "r1",
    )
    assert (got["changed"], got["tool"], check["context"]["version"]) == (False, "nvbandwidth", "v0.8-emulated")
    assert [gpu["numa_node"] for gpu in got["gpus"]] == NODES
    assert {gpu["binding"] for gpu in got["gpus"]} == {"numactl"}
    second = got["gpus"][2]
    assert " ".join(second["argv"]) == (
        f"{machine.folder}/bin/numactl --physcpubind=0-23 --membind=0 {machine.folder}/bin/nvbandwidth"
        " -t host_to_device_memcpy_ce device_to_host_memcpy_ce device_local_copy"
    )
    assert second["environment"] == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": second["uuid"]}
    assert second["uuid"].startswith("GPU-")
    assert [(m["name"], m["gpu"]) for m in check["metrics"]] == [
        (name, index) for index in range(8) for name in ("h2d", "d2h", "d2d")
    ]


def test_bandwidthtest_is_preferred_where_it_exists(machine: Machine) -> None:
    machine.link("bandwidthTest")
    got = machine(gpus=[4], directions=["h2d", "d2h"])
    assert (got["tool"], got["checks"][0]["verdict"]) == ("bandwidthTest", "unjudged")
    assert got["gpus"][0]["argv"][3:5] == [f"{machine.folder}/bin/bandwidthTest", "--device=0"]
    assert got["gpus"][0]["h2d"] > 20 and "d2d" not in got["gpus"][0]
    assert machine(gpus=[4], tool="nvbandwidth")["tool"] == "nvbandwidth"


@pytest.mark.parametrize("name", ["bandwidthTest", "nvbandwidth"])
def test_a_slow_gpu_is_named(machine: Machine, name: str) -> None:
    if name == "bandwidthTest":
        machine.link(name)
    (check,) = machine(faults={"slow_gpu": {"5": 0.5}}, tool=name, expect=PROFILE["expect"])["checks"]
    assert (check["verdict"], check["class"], check["scope"]) == ("fail", "hardware", {"gpu": [5]})
    assert "h2d (gpu=5)" in check["reason"] and "gpu=4" not in check["reason"]


def test_a_missing_gpu_is_an_error_and_the_others_are_measured(machine: Machine) -> None:
    topology = {
        "gpus": [{**gpu, "index": n, "bus_id": f"{gpu['pci_domain']}:00:00.0"} for n, gpu in enumerate(_gpus())]
    }
    got = machine(faults={"missing_gpu": [3]}, gpus=8, topology=topology)
    (check,) = got["checks"]
    assert (check["verdict"], check["class"], check["scope"]) == ("error", "infra", {"gpu": [3]})
    assert check["reason"] == "GPU 3: nvidia-smi does not list GPU 3 at 00000004:00:00.0; it lists 7"
    assert [gpu["h2d"] is None for gpu in got["gpus"]] == [n == 3 for n in range(8)]


def _gpus() -> list[dict[str, t.Any]]:
    return [{key: value for key, value in gpu.items() if key != "nic"} for gpu in PROFILE["topology"]["gpus"]]


def test_gpus_that_nobody_lists_are_errors_too_and_blame_no_device(machine: Machine) -> None:
    """Whichever is gone, the last number is free; nobody can tell from here which device that was."""
    (check,) = machine(faults={"missing_gpu": [3]}, gpus=8)["checks"]
    assert (check["verdict"], check["scope"]) == ("error", {})
    assert "GPU 7: nvidia-smi does not list GPU 7; it lists 7; which one is gone says gpu_count" in check["reason"]


def test_a_lost_gpu_keeps_its_number_and_gives_it_to_no_other(machine: Machine) -> None:
    """nvidia-smi ends with another status than 0 then, and lists the others all the same."""
    got = machine(faults={"lost_gpu": [3]}, gpus=8)
    (check,) = got["checks"]
    assert (check["verdict"], check["scope"]) == ("error", {"gpu": [3]})
    assert check["reason"] == "GPU 3: nvidia-smi does not list GPU 3; it lists 7"
    assert [gpu["gpu"] for gpu in got["gpus"] if gpu["h2d"] is None] == [3]
    assert [gpu["bus_id"] for gpu in got["gpus"]][4] == "0000000B:00:00.0"
    assert {gpu["environment"].get("CUDA_VISIBLE_DEVICES", "GPU-")[:4] for gpu in got["gpus"]} == {"GPU-"}


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_a_program_that_hangs_costs_only_its_gpu(machine: Machine, mode: str) -> None:
    real = machine.folder / "bin/nvbandwidth"
    (machine.folder / "bin/alias").mkdir()
    (machine.folder / "bin/alias/nvbandwidth").symlink_to("../../gpu_tools/emulate")
    command = machine.folder / "bin/alias/nvbandwidth"
    stand_in(real, "hangs_for.sh", device=_uuid(machine, 1), command=command)
    begin = time.monotonic()
    limit = round(patience(2))  # enough for those that do not hang
    got = machine(gpus=4, mode=mode, timeout=limit)
    (check,) = got["checks"]
    assert time.monotonic() - begin < patience(30)
    assert (check["verdict"], check["class"], check["scope"]) == ("error", "infra", {"gpu": [1]})
    assert f"did not end within {limit} s" in check["reason"]
    assert [gpu["h2d"] is None for gpu in got["gpus"]] == [False, True, False, False]


def _uuid(machine: Machine, index: int) -> str:
    return str(json.loads((machine.folder / "machine.json").read_text())["gpus"][index]["uuid"])


def test_a_hung_nvidia_smi_leaves_indexes(machine: Machine) -> None:
    got = machine(faults={"hung": ["nvidia-smi"]}, timeout=round(patience(2)), gpus=2)
    assert [gpu["environment"]["CUDA_VISIBLE_DEVICES"] for gpu in got["gpus"]] == ["0", "1"]
    assert got["checks"][0]["verdict"] == "unjudged"


def test_a_failure_of_the_memory_is_the_gpus(machine: Machine) -> None:
    machine.link("bandwidthTest")
    (check,) = machine(faults={"ecc": {"2": 1}}, gpus=[1, 2], tool="bandwidthTest")["checks"]
    assert (check["verdict"], check["class"], check["scope"]) == ("fail", "hardware", {"gpu": [2]})
    assert "ECCUncorrectable" in check["reason"]


def test_nothing_is_measured_in_check_mode(machine: Machine) -> None:
    got = machine(check_mode=True)
    assert (got["checks"][0]["verdict"], got["checks"][0]["reason"], got["gpus"]) == ("skipped", "check mode", [])


def test_without_gpus(machine: Machine) -> None:
    none = {"missing_gpu": list(range(8))}
    empty = str(machine.folder / "bin")
    got = machine(faults=none, sysfs=empty)["checks"][0]
    assert (got["verdict"], got["reason"]) == ("skipped", "no GPU")
    got = machine(faults=none, sysfs=empty, expect=PROFILE["expect"])["checks"][0]
    assert (got["verdict"], got["class"]) == ("error", "infra")


def test_a_program_that_is_nowhere_names_places_and_role(machine: Machine) -> None:
    (machine.folder / "bin/nvbandwidth").unlink()
    got = machine()
    (check,) = got["checks"]
    assert (check["verdict"], check["class"], len(got["gpus"])) == ("error", "infra", 8)
    assert all(word in check["reason"] for word in ("bandwidthTest", "nvbandwidth", "/nowhere/bin", "gpu_test_tools"))
    assert check["context"]["missing"] == ["bandwidthTest", "nvbandwidth"]


def test_a_step_that_jobs_keep_waiting_is_skipped(machine: Machine) -> None:
    busy = "srun: error: Unable to allocate resources: Requested nodes are busy\n"
    answer(machine.bin / "srun", err=busy, status=1)
    got = machine(launcher="srun", hosts=["gpu-001"], gpus=8, path="/x/nvbandwidth")
    (check,) = got["checks"]
    assert (check["verdict"], check["node"]) == ("skipped", "gpu-001")
    assert "nodes are busy" in check["reason"]


def test_a_step_measures_what_the_topology_says(machine: Machine) -> None:
    # Slurm sets the variable itself when a step has GPUs.
    stand_in(machine.bin / "srun", "step.sh", first="env", variables="CUDA_VISIBLE_DEVICES=0,1,2,3")
    topology = {"gpus": [{**gpu, "index": n, "cpus": "0-23"} for n, gpu in enumerate(_gpus())]}
    got = machine(launcher="srun", hosts=["gpu-001"], topology=topology, gpus=[2, 3], environment={"A": "b"})
    assert [gpu["h2d"] is None for gpu in got["gpus"]] == [False, False]
    assert [gpu["binding"] for gpu in got["gpus"]] == ["srun", "srun"]
    assert "--cpu-bind=mask_cpu:0xffffff" in got["gpus"][0]["argv"]
    assert got["gpus"][0]["environment"] == {"A": "b", "OMPI_MCA_coll_hcoll_enable": "0"}


SLOW = {"slow_gpu": {"3": 0.5}}
USED = {"processes": [{"gpu": 3, "pid": 4711, "name": "/opt/a b/train, v2", "memory_mib": 9000}]}


def test_gpus_in_use_are_not_measured(machine: Machine) -> None:
    got = machine(faults={**SLOW, **USED}, expect=PROFILE["expect"])
    (check,) = got["checks"]
    assert (check["verdict"], check["class"]) == ("skipped", None)
    assert re.fullmatch(r"in use: GPU 3 of \S+ by a \(pid 4711\)", check["reason"])
    assert {(gpu["h2d"], len(gpu["argv"])) for gpu in got["gpus"]} == {(None, 0)}


def test_gpus_beside_those_in_use_are(machine: Machine) -> None:
    (check,) = machine(faults={**SLOW, **USED}, gpus=[1, 2], expect=PROFILE["expect"])["checks"]
    assert check["verdict"] == "pass"


def test_what_is_shared_is_held_against_no_limit(machine: Machine) -> None:
    got = machine(faults={**SLOW, **USED}, gpus=[3], expect=PROFILE["expect"], share_gpus=True)
    (check,) = got["checks"]
    assert (check["verdict"], check["class"], got["gpus"][0]["h2d"] > 0) == ("unjudged", None, True)
    assert check["reason"].startswith("no limit applies; in use: GPU 3 of ")
    assert [user["pid"] for user in check["context"]["gpus_in_use"]] == [4711]


def test_a_program_that_comes_meanwhile_is_seen(machine: Machine) -> None:
    (machine.bin / "alias").mkdir()
    (machine.bin / "alias/nvbandwidth").symlink_to("../../gpu_tools/emulate")
    used = {"faults": json.dumps({**SLOW, **USED}), "file": machine.folder / "faults.json"}
    stand_in(machine.bin / "nvbandwidth", "begins_to_be_used.sh", **used, command=machine.bin / "alias/nvbandwidth")
    (check,) = machine(faults=SLOW, gpus=[3], expect=PROFILE["expect"])["checks"]
    assert (check["verdict"], check["class"]) == ("unjudged", None)
    assert "pid 4711" in check["reason"]


def test_where_nvidia_smi_is_missing_nobody_looks(machine: Machine) -> None:
    answer(machine.bin / "nvidia-smi", status=127)
    (check,) = machine(faults={**SLOW, **USED}, gpus=[3], expect=PROFILE["expect"])["checks"]
    assert (check["verdict"], check["class"]) == ("fail", "hardware")


def test_nothing_is_left_when_the_module_is_ended(machine: Machine) -> None:
    pid = machine.folder / "pid"
    answer(machine.bin / "nvbandwidth", pid=pid, hangs="yes")
    (machine.folder / "faults.json").write_text("{}")
    module = machine.start(gpus=[0], sysfs=str(machine.folder / "sys/sound"))
    deadline = time.monotonic() + 30
    while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    module.send_signal(signal.SIGTERM)
    module.communicate(timeout=patience(30))
    assert module.returncode == 128 + signal.SIGTERM
    assert not running(int(pid.read_text()))


@pytest.mark.parametrize(
    "params, text",
    [
        ({"gpus": "all"}, "gpus is 'all'"),
        ({"launcher": "srun", "launcher_path": "/bin/true"}, "needs gpus or topology"),
        ({"visible_devices": [0]}, "one process measures one GPU"),
        ({"topology": {"gpus": 3}}, "a topology is a dictionary"),
        ({"expect": [{"check": "gpu_bandwidth"}]}, "lacks metric"),
    ],
)
def test_options_that_make_no_sense_fail(machine: Machine, params: dict[str, t.Any], text: str) -> None:
    got = machine(**params)
    assert got["failed"] and text in got["msg"]


def test_documentation_and_options_agree() -> None:
    assert documented(gpu_bandwidth) == {**_launch.SPEC, **bandwidth.SPEC}
