# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""measure.yml as a newcomer calls it: no configuration, hosts with emulated tools, and the report that comes out."""

from __future__ import annotations

import json
import os
import shutil
import sys
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import ansible_playbook, few_settings, interpreter
from stand_in import instead

ROOT = Path(__file__).resolve().parents[3]
BUSBW = "nccl_tests all_reduce"  # the collective that has a limit


class Ended(t.NamedTuple):
    """How a run of measure.yml ended, and what it left."""

    rc: int
    text: str
    record: dict[str, t.Any]
    directory: Path

    def run(self) -> str:
        """The name of the last run."""
        return str(self.record["stages"][-1]["run"])

    def records(self, node: str | None) -> dict[str, dict[str, t.Any]]:
        """The records of a node, by check and collective."""
        own = [one for one in self.record["checks"] if one["node"] == node]
        return {f"{one['check']} {one['context'].get('collective', '')}".strip(): one for one in own}

    def verdicts(self, node: str | None) -> dict[str, str]:
        return {name: one["verdict"] for name, one in self.records(node).items()}

    def one(self, node: str | None, check: str) -> dict[str, t.Any]:
        return self.records(node)[check]


class Machines:
    """Hosts of an inventory that are all this machine, each with an interpreter that sees its own emulated tools."""

    def __init__(self, cluster: t.Any, directory: Path) -> None:
        self.cluster, self.directory, self.hosts = cluster, directory, {}
        directory.mkdir()
        (directory / "empty").mkdir()
        (directory / "scratch").mkdir()

    def emulated(self, host: str, node: str, **variables: t.Any) -> None:
        """Add a host that is one of the emulated nodes."""
        names = {key: value for key, value in self.cluster.environment.items() if key.startswith("GPU_TOOLS_")}
        names.update(PATH=self.cluster.environment["PATH"], GPU_TOOLS_HOST=node)
        self._add(host, names, {"measure_sysfs": f"{self.cluster.directory}/sys/{node}", **variables})

    def bare(self, host: str, **variables: t.Any) -> None:
        """Add a host without GPUs and without test programs."""
        self._add(host, {"PATH": self.few()}, {"measure_sysfs": f"{self.directory}/empty", **variables})

    def few(self) -> str:
        """Return a directory for PATH without any of the programs that the machine of the test may have."""
        path = self.directory / "few"
        if not path.exists():
            path.mkdir()
            for name in ("sh", "env", "basename", "dirname", "readlink"):
                (path / name).symlink_to(f"/usr/bin/{name}")
            (path / "python3").symlink_to(sys.executable)
        return str(path)

    def _add(self, host: str, names: dict[str, str], variables: dict[str, t.Any]) -> None:
        python = instead(self.directory / f"python-{host}", interpreter(), **names)
        local = {"ansible_connection": "local", "ansible_python_interpreter": str(python)}
        self.hosts[host] = {**local, **variables}

    def measure(self, *arguments: str, playbook: str = "measure", **inputs: t.Any) -> Ended:
        inventory = self.directory / "hosts.json"
        inventory.write_text(json.dumps({"all": {"hosts": self.hosts}}))
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "HPCAI_"))}
        environment.update(ANSIBLE_CONFIG=str(few_settings()), ANSIBLE_NOCOLOR="1")
        words = ["-i", str(inventory), "-e", json.dumps(inputs), *arguments, f"hpcai.gpu_cluster.{playbook}"]
        done = ansible_playbook(*words, cwd=self.directory, env=environment)
        path = self.directory / "reports/run.json"
        record = json.loads(path.read_text()) if path.exists() else {}
        return Ended(done.returncode, done.stdout + done.stderr, record, self.directory)


@pytest.fixture
def machines(cluster: t.Any, tmp_path: Path) -> Machines:
    return Machines(cluster, tmp_path / "controller")


def test_a_sound_a_faulty_and_a_bare_machine(machines: Machines) -> None:
    machines.cluster.damage("c2", slow_gpu={"5": 0.6})
    machines.emulated("gpu-01", "c1", measure_paths=[str(machines.directory / "scratch")])
    machines.emulated("gpu-02", "c2")
    machines.bare("login-01")
    ended = machines.measure()
    assert ended.rc == 0, ended.text

    sound = ended.verdicts("gpu-01")
    assert {sound[name] for name in ("gpu_count", "gpu_ecc", "gpu_bandwidth", BUSBW, "infiniband_ports")} == {"pass"}
    assert {sound[name] for name in ("infiniband_bandwidth", "hpl")} == {"pass"}, ended.text
    disk = shutil.disk_usage(machines.directory)
    if disk.free > min(disk.total // 10 + (17 << 30), 170 << 30):
        assert sound["storage_bandwidth"] not in ("skipped", "error")
    else:  # it says so, and writes nothing
        assert "free" in ended.one("gpu-01", "storage_bandwidth")["reason"]
    assert ended.one("gpu-01", "gpu_bandwidth")["context"]["profile"] == "nd96asr_v4"

    assert ended.verdicts("gpu-02")["gpu_bandwidth"] == "fail"
    assert ended.one("gpu-02", "gpu_bandwidth")["scope"] == {"gpu": [5]}
    assert "measure_paths" in ended.one("gpu-02", "storage_bandwidth")["reason"]

    assert set(ended.verdicts("login-01").values()) == {"skipped"}, ended.verdicts("login-01")

    stage = ended.record["stages"][0]
    assert (stage["stage"], stage["state"], stage["hosts"]) == ("measure", "done", ["gpu-01", "gpu-02", "login-01"])
    page = (ended.directory / "reports/measure.html").read_text()
    assert "gpu-02" in page and "GPU 5" in page
    assert "gpu-02 gpu_bandwidth: fail; h2d" in ended.text
    assert list((machines.directory / "scratch").iterdir()) == []

    again = machines.measure("-e", "measure_tests=gpu_info,infiniband measure_hosts=gpu-01")
    assert again.rc == 0, again.text
    assert "changed=0" in again.text
    assert not [one for one in again.record["checks"] if one["node"] != "gpu-01" and one["run"] != ended.run()]
    assert len({stage["run"] for stage in again.record["stages"]}) == 2, "the first run stays in the record"


def only_a_driver(machines: Machines, **variables: t.Any) -> None:
    """Make gpu-01 a machine that has nvidia-smi and no other program."""
    machines.emulated("gpu-01", "c1", **variables)
    for program in (machines.cluster.directory / "bin").iterdir():
        if program.name != "nvidia-smi":
            program.unlink()
    python = machines.directory / "python-gpu-01"
    python.write_text(python.read_text().replace(os.environ["PATH"], machines.few()))


def test_programs_that_are_missing_are_skipped_with_the_way_to_get_them(machines: Machines) -> None:
    only_a_driver(machines, measure_paths=[str(machines.directory / "scratch")])
    ended = machines.measure(measure_tests=["gpu_info", "gpu_bandwidth", "nccl_tests", "storage_bandwidth", "hpl"])
    assert ended.rc == 0, ended.text
    assert ended.verdicts("gpu-01")["gpu_count"] == "pass"
    advice = {"gpu_bandwidth": "measure_build_tools", BUSBW: "measure_build_tools", "hpl": "hpc-benchmarks"}
    for check, words in {**advice, "storage_bandwidth": "package fio"}.items():
        record = ended.one("gpu-01", check)
        assert (record["verdict"], record["class"]) == ("skipped", None), record["reason"]
        assert words in record["reason"]


def test_tools_that_cannot_be_built_fail_the_play_and_stop_no_other_measurement(machines: Machines) -> None:
    only_a_driver(machines, ansible_become=False, gpu_test_tools_cuda_home="/nonexistent")
    ended = machines.measure(measure_tests=["gpu_info", "gpu_bandwidth"], measure_build_tools=True)
    assert ended.rc == 2, ended.text
    assert ended.verdicts("gpu-01")["gpu_count"] == "pass"
    assert ended.verdicts("gpu-01")["gpu_bandwidth"] == "skipped"
    assert "GPU test tools" in ended.record["stages"][0]["failures"]["gpu-01"]
    assert (ended.directory / "reports/measure.html").exists()


def test_a_measured_host_that_is_called_localhost_and_has_no_python_is_in_the_report(machines: Machines) -> None:
    machines.bare("localhost", measure_tests=["gpu_info"])
    machines.hosts["localhost"]["ansible_python_interpreter"] = "/nonexistent/python3"
    ended = machines.measure()
    assert ended.rc == 2, ended.text
    assert "not reached" in ended.record["stages"][0]["failures"]["localhost"], ended.text
    assert "ansible_python_interpreter names" in ended.text
    assert (ended.directory / "reports/measure.html").exists()


def test_gpus_in_use_are_left_alone(machines: Machines) -> None:
    machines.cluster.damage(processes=[{"gpu": 0, "pid": os.getpid()}])
    machines.emulated("gpu-01", "c1")
    ended = machines.measure(measure_tests=["gpu_bandwidth", "nccl_tests", "hpl"])
    assert ended.rc == 0, ended.text
    assert set(ended.verdicts("gpu-01").values()) == {"skipped"}, ended.text
    assert str(os.getpid()) in ended.one("gpu-01", "gpu_bandwidth")["reason"]


def test_dcgm_is_asked_by_choice_and_missing_on_most_machines(machines: Machines) -> None:
    machines.emulated("gpu-01", "c1")
    missing = machines.measure(measure_tests=["dcgm"])
    assert missing.rc == 0, missing.text
    assert missing.verdicts("gpu-01") == {"dcgm_health": "skipped", "dcgm_diag": "skipped"}
    assert "install DCGM" in missing.one("gpu-01", "dcgm_diag")["reason"]


def test_dcgm_at_a_level_of_its_own(machines: Machines) -> None:
    machines.cluster.add("dcgmi")
    machines.cluster.damage("c1", ecc={"3": 2})
    machines.emulated("gpu-01", "c1")
    ended = machines.measure(measure_tests=["dcgm"], measure_dcgm_level=2, measure_fail_on=["fail"])
    assert ended.rc == 2, ended.text
    assert ended.verdicts("gpu-01") == {"dcgm_health": "fail", "dcgm_diag": "fail"}
    assert "dcgm_diag: fail" in ended.text and "memory on GPU 3: Found 2 faulty memory elements" in ended.text


def test_a_named_directory_without_the_programs_is_an_error_and_can_fail_the_play(machines: Machines) -> None:
    machines.emulated("gpu-01", "c1")
    ended = machines.measure(measure_tests=["gpu_bandwidth"], measure_path="/nonexistent", measure_fail_on=["error"])
    assert ended.rc == 2
    assert ended.verdicts("gpu-01") == {"gpu_bandwidth": "error"}
    assert (ended.directory / "reports/measure.html").exists()


def test_a_machine_of_an_unknown_type_is_measured_and_not_judged(machines: Machines) -> None:
    machines.cluster.damage("c1", missing_gpu=[5, 6])
    machines.emulated("gpu-01", "c1")
    ended = machines.measure(measure_tests=["gpu_info", "gpu_bandwidth", "nccl_tests"])
    assert ended.rc == 0, ended.text
    record = ended.one("gpu-01", "gpu_bandwidth")
    assert (record["verdict"], record["context"]["profile"]) == ("unjudged", None), record["reason"]
    assert len([one for one in record["metrics"] if one["name"] == "h2d" and one["value"]]) == 6
    assert ended.verdicts("gpu-01")[BUSBW] == ended.verdicts("gpu-01")["gpu_count"] == "unjudged"
    assert ended.verdicts("gpu-01")["gpu_ecc"] == "pass"
    # The type is known to somebody: the same machine lacks two GPUs.
    named = machines.measure(measure_tests=["gpu_info"], measure_sku="Standard_ND96asr_v4")
    assert [one["verdict"] for one in named.record["checks"] if one["check"] == "gpu_count"][-1] == "fail"


def test_a_fault_of_a_gpu_is_one_on_a_machine_of_an_unknown_type_as_well(machines: Machines) -> None:
    machines.cluster.damage("c1", missing_gpu=[5, 6], ecc={"3": 2})
    machines.emulated("gpu-01", "c1")
    ended = machines.measure(measure_tests=["gpu_info"], measure_fail_on=["fail"])
    assert ended.rc == 2, ended.text
    assert "gpu_ecc: fail" in ended.text and "volatile_uncorrected (gpu=3): 2 errors, expected == 0" in ended.text


def test_a_host_that_does_not_answer_is_in_the_report(machines: Machines) -> None:
    machines.emulated("gpu-01", "c1")
    machines.hosts["gpu-02"] = {"ansible_host": "127.0.0.2", "ansible_port": 1}
    ended = machines.measure(measure_tests=["gpu_info"])
    assert ended.rc != 0
    assert ended.verdicts("gpu-01")["gpu_count"] == "pass"
    record = ended.one("gpu-02", "measure")
    assert (record["verdict"], record["class"]) == ("error", "infra")
    assert "not reached" in record["reason"]
    assert ended.record["stages"][0]["state"] == "failed"
    assert (ended.directory / "reports/measure.html").exists()


def test_nccl_over_all_hosts_by_mpirun(machines: Machines) -> None:
    machines.emulated("c1", "c1")
    machines.emulated("c2", "c2")
    ended = machines.measure(measure_tests=["nccl_tests"], measure_launcher="mpirun")
    assert ended.rc == 0, ended.text
    assert ended.verdicts("c1")[BUSBW] == ended.verdicts("c2")[BUSBW] == "pass"
    assert ended.one(None, BUSBW)["scope"] == {"group": ["c1", "c2"]}
    assert {one["context"]["launcher"] for one in ended.record["checks"] if one["node"] is None} == {"mpirun"}


def test_through_slurm(machines: Machines) -> None:
    machines.cluster.damage("c2", slow_gpu={"1": 0.5})
    machines.emulated("login-01", "c1")
    (machines.directory / "shared").mkdir()
    inputs = {"measure_launcher": "srun", "measure_nodes": "c[1-2]", "measure_sku": "ND96asr_v4"}
    ended = machines.measure(**inputs, measure_shared_dir=str(machines.directory / "shared"))
    assert ended.rc == 0, ended.text
    assert ended.verdicts("c1")["gpu_bandwidth"] == "pass", ended.one("c1", "gpu_bandwidth")["reason"]
    assert ended.verdicts("c2")["gpu_bandwidth"] == "fail"
    assert ended.verdicts("c1")[BUSBW] == "pass"
    assert ended.verdicts("c1")["hpl"] == "pass", ended.one("c1", "hpl")["reason"]
    assert ended.one(None, BUSBW)["scope"] == {"group": ["c1", "c2"]}
    assert ended.verdicts("c1")["infiniband_bandwidth"] == "pass", ended.one("c1", "infiniband_bandwidth")["reason"]
    assert ended.verdicts(None)["infiniband_bandwidth"] == "pass"  # the pair
    assert "SSH" in ended.one("c1", "gpu_count")["reason"]


def test_check_mode_measures_nothing_and_says_so(machines: Machines) -> None:
    machines.emulated("gpu-01", "c1")
    ended = machines.measure("--check")
    assert ended.rc == 0, ended.text
    assert "Check mode measures nothing" in ended.text
    assert not (machines.directory / "reports").exists()


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"measure_tests": ["gpu_speed"]}, "must be one"),
        ({"measure_tests": []}, "measure_tests is empty"),
        ({"measure_sku": "ND99"}, "which has no profile; known are"),
        ({"measure_paths": ["scratch"]}, "absolute"),
        ({"measure_gpus": "many"}, "measure_gpus"),
        ({"measure_nodes": "gpu-[01-02]"}, "measure_launcher srun"),
        ({"measure_launcher": "srun"}, "measure_nodes"),
        ({"measure_launcher": "srun", "measure_nodes": "c1"}, "measure_sku or measure_gpus"),
        ({"measure_launcher": "ssh"}, "must be one"),
    ],
)
def test_wrong_inputs_are_refused_before_anything_runs(
    machines: Machines, inputs: dict[str, t.Any], words: str
) -> None:
    machines.emulated("gpu-01", "c1")
    ended = machines.measure(**inputs)
    assert ended.rc != 0
    assert words in " ".join(ended.text.split()), ended.text
    assert "Reach the hosts" not in ended.text
    assert not (machines.directory / "reports").exists()


def test_a_profile_is_drafted_from_a_sound_machine_and_judges_the_next_one(machines: Machines) -> None:
    """From machines that no profile is about to limits that were measured here, which find the slow one of them."""
    machines.cluster.damage("c2", slow_gpu={"5": 0.6})
    machines.emulated("gpu-01", "c1")
    machines.emulated("gpu-02", "c2")
    few = {"measure_tests": "gpu_info,gpu_bandwidth"}
    nothing = machines.measure(playbook="draft_profile", draft_profile_name="ours")
    assert nothing.rc != 0 and "run measure.yml on a sound node first" in nothing.text, nothing.text
    first = machines.measure(measure_hosts="gpu-01", measure_sku="generic", **few)
    assert first.rc == 0, first.text
    assert first.verdicts("gpu-01")["gpu_bandwidth"] == "unjudged"

    profiles = machines.directory / "profiles"
    profiles.mkdir()
    drafted = machines.measure(playbook="draft_profile", draft_profile_name="Ours", draft_profile_margin=10)
    assert drafted.rc == 0, drafted.text
    text = (profiles / "ours.yml").read_text()
    assert "measured here on" in text and "gpu-01" in text and "less 10 %" in text
    again = machines.measure(playbook="draft_profile", draft_profile_name="ours")
    assert again.rc != 0 and "must not be there yet" in again.text
    assert (profiles / "ours.yml").read_text() == text

    second = machines.measure(measure_sku="ours", measure_tests="gpu_info,gpu_bandwidth")
    assert second.rc == 0, second.text
    assert second.verdicts("gpu-01")["gpu_bandwidth"] == second.verdicts("gpu-01")["gpu_count"] == "pass"
    assert second.verdicts("gpu-02")["gpu_bandwidth"] == "fail"
    assert second.one("gpu-02", "gpu_bandwidth")["context"]["profile"] == "ours"
    faulty = machines.measure(playbook="draft_profile", draft_profile_name="theirs")
    assert faulty.rc != 0 and "no profile is drafted from nodes at fault: gpu-02 gpu_bandwidth: fail" in faulty.text
