# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host does by itself at boot and around jobs, up to the program that the role gpu_clocks puts together."""

from __future__ import annotations

import json
import subprocess
import sys
import typing as t
from pathlib import Path

import jinja2
import pytest
import yaml
from patience import patience
from stand_in import answer, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import clocks_boot as host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks import ClocksRequest
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._node_program import files

ROOT = Path(__file__).resolve().parents[5]
ROLE = ROOT / "roles/gpu_clocks"
BUS_IDS = ["00000001:00:00.0", "0000000A:00:00.0", "0000000B:00:00.0"]
Json = t.Dict[str, t.Any]


class Host:
    """A host with the program that the role installs, in a directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.library = folder, folder / "lib"
        self.smi, self.program, self.settings = folder / "nvidia-smi", folder / "gpu-clocks", folder / "settings.json"
        stand_in(self.smi, "nvidia_smi_three.sh")
        self.variables = {**yaml.safe_load((ROLE / "vars/main.yml").read_text()), "ansible_managed": "managed"}
        self.variables["__gpu_clocks_library"] = str(self.library)
        self.variables["__gpu_clocks_settings"] = str(self.settings)
        self.variables["__gpu_clocks_program"] = str(self.program)
        options = {"library": self.library, "program": str(self.program), "function": "main"}
        options.update(interpreter=sys.executable, arguments=[self.settings])
        for file in files("gpu.clocks_boot", options):
            path = Path(file["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file["content"])
            path.chmod(int(file["mode"], 8))
        self.configure()

    def render(self, template: str, **more: t.Any) -> str:
        environment = jinja2.Environment(autoescape=False, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
        environment.filters.update(comment="# {}".format, to_nice_json=json.dumps)
        return environment.from_string((ROLE / "templates" / template).read_text()).render({**self.variables, **more})

    def write(self, path: Path, template: str, **more: t.Any) -> Path:
        path.write_text(self.render(template, **more))
        path.chmod(0o755)
        return path

    def configure(self, **changes: t.Any) -> None:
        """Write the settings from the role's defaults; no clock takes time to move here."""
        defaults = {**yaml.safe_load((ROLE / "defaults/main.yml").read_text()), "gpu_clocks_nvidia_smi": str(self.smi)}
        given = {**defaults, **changes, "__gpu_clocks_given": changes.get("gpu_clocks_state") == "locked"}
        settings = json.loads(self.render("settings.json.j2", **given))
        record = str(self.folder / "run/gpu_clocks.json")
        self.settings.write_text(json.dumps({**settings, "settle": 0, "record": record}))

    def run(self, event: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.program), event],
            env=environment,
            capture_output=True,
            text=True,
            timeout=patience(60),
            check=False,
        )

    def clocks(self) -> list[int]:
        files = [self.folder / f"graphics-{bus_id}" for bus_id in BUS_IDS]
        return [int(file.read_text()) if file.exists() else 210 for file in files]


@pytest.fixture
def machine(tmp_path: Path) -> Host:
    return Host(tmp_path)


def job(number: int, gpus: str, **more: str) -> dict[str, str]:
    return {"SLURM_JOB_ID": str(number), "SLURM_JOB_GPUS": gpus, **more}


def test_boot(machine: Host) -> None:
    done = machine.run("boot")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"event": "boot", "gpus": [0, 1, 2], "changed": [0, 1, 2], "problems": []}
    assert machine.clocks() == [1410] * 3
    assert json.loads(machine.run("boot").stdout)["changed"] == []


def test_boot_with_given_clocks(machine: Host) -> None:
    machine.configure(gpu_clocks_state="locked", gpu_clocks_graphics=1200)
    assert machine.run("boot").returncode == 0
    assert machine.clocks() == [1200] * 3


def test_jobs_are_left_alone_when_the_clocks_are_set_at_boot(machine: Host) -> None:
    machine.run("boot")
    machine.run("prolog", **job(1, "0"))
    machine.run("epilog", **job(1, "0"))
    assert machine.clocks() == [1410] * 3


def test_only_the_gpus_of_jobs(machine: Host) -> None:
    """Each job's end gives back what its start set, also when the epilog is not told what the job had."""
    machine.configure(gpu_clocks_when="job")
    machine.run("boot")
    assert machine.clocks() == [210, 210, 210]
    machine.run("prolog", **job(1, "0,2"))
    machine.run("prolog", **job(2, "1"))
    assert machine.clocks() == [1410] * 3
    machine.run("epilog", SLURM_JOB_ID="1")
    assert machine.clocks() == [210, 1410, 210]
    machine.run("boot")
    assert machine.clocks() == [210, 1410, 210], "the unit was started again while job 2 runs"
    machine.run("epilog", SLURM_JOB_ID="2")
    assert machine.clocks() == [210] * 3
    machine.run("prolog", SLURM_JOB_ID="3")
    assert machine.clocks() == [210] * 3, "a job without GPUs"


@pytest.mark.parametrize("event", ["boot", "prolog", "epilog", "nonsense"])
def test_a_hanging_nvidia_smi_fails_nothing(machine: Host, event: str) -> None:
    machine.configure(gpu_clocks_when="job", gpu_clocks_timeout=1)
    (machine.folder / "hangs").touch()
    done = machine.run(event, **job(1, "0"))
    assert (done.returncode, done.stderr) == (0, "")
    assert ("did not end within 1 s" in done.stdout) == (event == "boot")


@pytest.mark.parametrize("text", ["", "{}", "{"])
def test_settings_that_are_none_fail_nothing(machine: Host, text: str) -> None:
    machine.settings.write_text(text)
    done = machine.run("boot")
    assert done.returncode == 0
    assert "Error" in done.stdout


def test_all_calls_together_have_a_limit(machine: Host) -> None:
    settings = json.loads(machine.settings.read_text())
    machine.settings.write_text(json.dumps({**settings, "budget": {"boot": 0, "job": 0}}))
    assert "the time for all of it is over" in machine.run("boot").stdout
    assert machine.clocks() == [210] * 3


@pytest.mark.parametrize("event", ["prolog", "epilog"])
@pytest.mark.parametrize("works", [True, False])
def test_a_hook_never_fails(machine: Host, event: str, works: bool) -> None:
    hook = machine.write(machine.folder / event, "gpu-clocks-hook.j2", __gpu_clocks_event=event)
    if not works:
        answer(machine.program, status=3)
    done = subprocess.run([str(hook)], env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_unit_has_its_place_in_the_boot(machine: Host) -> None:
    unit = dict(
        line.split("=", 1) for line in machine.render("hpcai-gpu-clocks.service.j2").splitlines() if "=" in line
    )
    assert {"hpcai-scratch.service", "nvidia-fabricmanager.service"} <= set(unit["After"].split())
    assert {"hpcai-node-ready.target", "slurmd.service"} <= set(unit["Before"].split())
    assert unit["ExecStart"] == f"-{machine.program} boot", "no clock is worth a failed unit"


@pytest.mark.parametrize(
    "feature, environment, wanted",
    [
        ("", {}, True),
        ("max", {}, False),
        ("max", {"SLURM_JOB_CONSTRAINTS": "ib&max"}, True),
        ("max", {"SLURM_JOB_CONSTRAINTS": "[max*2&ib]"}, True),
        ("max", {"SLURM_JOB_CONSTRAINTS": "maximal"}, False),
        ("max", {"SLURM_JOB_COMMENT": "please max, thanks"}, True),
        ("max", {"SLURM_JOB_COMMENT": "no-max"}, False),
    ],
)
def test_what_jobs_ask_for(feature: str, environment: dict[str, str], wanted: bool) -> None:
    assert host.opted_in(feature, environment) is wanted
    settings: Json = {"when": "job", "state": "maximum", "graphics": 0, "memory": 0, "feature": feature}
    assert host.request_for(settings, "prolog", environment) == (ClocksRequest() if wanted else None)


def test_slurm_counts_device_files(tmp_path: Path) -> None:
    for bus_id, minor in zip(BUS_IDS, (2, 0, 1)):
        (tmp_path / bus_id[4:].lower()).mkdir()
        (tmp_path / bus_id[4:].lower() / "information").write_text(f"Model: \t\t A100\nDevice Minor: \t {minor}\n")
    assert host.gpus_of_job({"SLURM_JOB_GPUS": "0,1"}, BUS_IDS, str(tmp_path)) == {1, 2}
    assert host.gpus_of_job({"SLURM_JOB_GPUS": "0,1"}, BUS_IDS, str(tmp_path / "none")) == {0, 1}
    assert host.gpus_of_job({}, BUS_IDS, str(tmp_path)) == set()
