# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs as AWX runs them: each by ansible-runner in a private data directory of its own.

The directory has the installed tarball and site_template, and nothing else. HPCAI_TEST_IMAGE names an image, such as
tests/tools/execution_environment.py builds, in which the jobs run then, as AWX starts them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

from execution_environment import LIMITS

ROOT = Path(__file__).resolve().parents[2]
IMAGE = os.environ.get("HPCAI_TEST_IMAGE", "")
Json = t.Dict[str, t.Any]
# What a job would else compile anew, and the next one does without.
TEMPLATES = (".cache", "hpcai.gpu_cluster", "templates")


class Job(t.NamedTuple):
    """How a job ended, what it printed, and its events."""

    rc: int
    text: str
    events: list[Json]

    def artifacts(self) -> Json:
        """Return what the job's set_stats hand to the later jobs of a workflow, as AWX reads them."""
        found: Json = {}
        for event in self.events:
            found |= event.get("event_data", {}).get("artifact_data") or {}
        return found


def clean(home: Path) -> dict[str, str]:
    """The environment of a container: programs and no more."""
    path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8"} | {
        name: os.environ[name] for name in ("PYTHONPATH", "TMPDIR") if name in os.environ
    }


def install(directory: Path) -> Path:
    """Build the tarball and install it there."""
    galaxy = [sys.executable, "-m", "ansible.cli.galaxy", "collection"]
    for words in (
        ["build", str(ROOT), "--output-path", str(directory)],
        ["install", "--no-deps", "-p", str(directory)],
    ):
        tarball = [str(path) for path in directory.glob("*.tar.gz")] if words[0] == "install" else []
        subprocess.run(
            [*galaxy, *words, *tarball], cwd=directory, env=clean(directory), check=True, capture_output=True
        )
    return directory


def private_directory(directory: Path, collections: Path) -> None:
    """Make what a job finds: the project with its collections, and an empty inventory and environment."""
    shutil.copytree(ROOT / "site_template", directory / "project")
    (directory / "project/collections/ansible_collections").symlink_to(collections / "ansible_collections")
    for name in ("inventory", "env", "home"):
        (directory / name).mkdir()


def in_image(*options: str) -> list[str]:
    """Return what AWX tells ansible-runner of the image; nothing where there is none."""
    isolated = ["--process-isolation", "--process-isolation-executable=podman", f"--container-image={IMAGE}"]
    given = ["--user=root", *LIMITS, *options]
    return [*isolated, *(f"--container-option={option}" for option in given)] if IMAGE else []


def run_job(directory: Path, playbook: str, variables: Json, more: t.Sequence[str] = ()) -> Job:
    """Run a playbook of the project in that directory, and remove the directory."""
    (directory / "env/extravars").write_text(json.dumps(variables))
    words = ["run", str(directory), "-p", f"playbooks/{playbook}.yml", "-i", "job", *more]
    command = [sys.executable, "-m", "ansible_runner", *words]
    done = subprocess.run(command, env=clean(directory / "home"), capture_output=True, text=True, check=False)
    kept = {path.relative_to(directory / "home").parts for path in (directory / "home").rglob("*") if path.is_file()}
    kept -= {parts for parts in kept if parts[0] == ".ansible" or parts[:3] == TEMPLATES}
    assert not kept, f"a job keeps things in its home: {kept}"
    events = [json.loads(path.read_text()) for path in sorted((directory / "artifacts/job/job_events").glob("*.json"))]
    shutil.rmtree(directory)
    return Job(done.returncode, done.stdout + done.stderr, events)
