# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run record in a container of Azurite: jobs that share nothing but its address find what the others kept."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible_playbook import Ended, ansible_playbook, interpreter, of_clone
from azurite import HOST, Azurite

PYTHON = Path(__file__).parents[2] / ".build/azure/bin/python"
STAGE = {"run": "awx-41", "state": "done", "verdicts": {"pass": 3}, "changes": {}}
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="there is no .build/azure (make azure-venv)")


class Job:
    """A job in a directory of its own, with a role call of run_results on a host of the cluster."""

    def __init__(self, account: Azurite, directory: Path, *stages: str) -> None:
        self.account, self.directory = account, directory
        (directory / "report").mkdir(parents=True)
        if stages:
            told = [{**STAGE, "stage": stage, "start": f"2026-11-2{n}T10:00:00Z"} for n, stage in enumerate(stages)]
            (directory / "report/run.json").write_text(json.dumps({"schema": 1, "cluster": "train", "stages": told}))

    def run(self, tasks_from: str, blob: str, fails: bool = False, **more: t.Any) -> Ended:
        role = {"name": "hpcai.gpu_cluster.run_results", "tasks_from": tasks_from}
        play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"ansible.builtin.import_role": role}]}
        variables = {
            "ansible_python_interpreter": interpreter(),
            "run_results_dir": "",
            "run_results_blob": blob,
            "run_results_report_dir": str(self.directory / "report"),
            "run_results_files": ["report.html"],
            "run_results_required": True,
            **more,
        }
        (self.directory / "play.json").write_text(json.dumps([{**play, "vars": variables}]))
        proxy = self.account.environment
        environment = of_clone(
            self.directory,
            AZURE_SUBSCRIPTION_ID="00000000-0000-0000-0000-000000000001",
            ANSIBLE_AZURE_AUTH_SOURCE="msi",
            REQUESTS_CA_BUNDLE=str(self.account.certificate),
            **{name: proxy[name] for name in ("HTTPS_PROXY", "IDENTITY_ENDPOINT", "IDENTITY_HEADER")},
        )
        words = ("--connection=local", "-i", "localhost,", "play.json", "-v")
        done = ansible_playbook(*words, cwd=self.directory, env=environment, python=PYTHON)
        assert bool(done.returncode) is fails, done.stdout + done.stderr
        return done

    def stages(self) -> list[str]:
        return [stage["stage"] for stage in json.loads((self.directory / "report/run.json").read_text())["stages"]]


def test_jobs_that_share_nothing_find_each_other_s_record(account: Azurite, tmp_path: Path) -> None:
    assert account.request("PUT", "/results?restype=container")[0] == 201
    directory = f"https://{HOST}/results/train"
    first = Job(account, tmp_path / "first", "configure")
    (first.directory / "report/report.html").write_text("<html>")
    first.run("main", directory)
    Job(account, tmp_path / "second", "certify").run("main", directory)
    assert account.request("GET", "/results/train/report.html") == (200, b"<html>")

    last = Job(account, tmp_path / "last", "report")
    last.run("fetch", directory)
    assert set(last.stages()) == {"configure", "certify", "report"}
    # Where the container and a host are asked for, the host has its part too.
    last.run("main", directory, run_results_dir=str(tmp_path / "host"))
    assert json.loads((tmp_path / "host/run.json").read_text())["cluster"] == "train"


def test_nothing_was_kept_yet(account: Azurite, tmp_path: Path) -> None:
    assert account.request("PUT", "/empty?restype=container")[0] == 201
    Job(account, tmp_path).run("fetch", f"https://{HOST}/empty")
    assert not (tmp_path / "report/run.json").exists()


@pytest.mark.parametrize(
    ("blob", "text"),
    [
        (f"https://{HOST}/none", "404 ContainerNotFound. The container has to exist"),
        ("https://example.org/results", "is no place for blobs; accepted: https://ACCOUNT.blob"),
    ],
)
def test_a_container_that_cannot_be_had_is_told(account: Azurite, tmp_path: Path, blob: str, text: str) -> None:
    job = Job(account, tmp_path, "certify")
    done = job.run("main", blob, fails=True, run_results_dir=str(tmp_path / "host"))
    assert text in " ".join(done.stdout.split()), done.stdout
    assert (tmp_path / "host/run.json").exists(), "the host got nothing because the container failed"
    job.run("main", blob, run_results_required=False)
