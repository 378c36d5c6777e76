# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tarball that users install: what is in it, and how large it is."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
LARGEST = 1_600_000  # bytes


def test_the_tarball_holds_what_users_run_and_nothing_else(tmp_path: Path) -> None:
    build = [
        sys.executable,
        "-m",
        "ansible.cli.galaxy",
        "collection",
        "build",
        str(ROOT),
        "--output-path",
        str(tmp_path),
    ]
    subprocess.run(build, check=True, capture_output=True)
    (tarball,) = tmp_path.glob("hpcai-gpu_cluster-*.tar.gz")
    with tarfile.open(tarball) as archive:
        names = set(archive.getnames())
    for needed in (
        "README.md",
        "bindep.txt",
        "meta/execution-environment.yml",
        "meta/runtime.yml",
        "playbooks/site.yml",
        "plugins/modules/nccl_tests.py",
        "requirements/execution-environment.txt",
        "roles/slurm",
    ):
        assert needed in names
    kept_out = ("tests", "extensions", "site_template", "benchmarks", "docs", "lab", ".build", ".git", ".ci")
    assert not [name for name in names if name.split("/")[0] in kept_out]
    assert tarball.stat().st_size <= LARGEST


def test_who_installs_it_gets_the_collections_that_it_uses_and_no_others() -> None:
    texts = [path.read_text() for place in ("playbooks", "roles") for path in (ROOT / place).rglob("*.yml")]
    used = {
        name
        for text in texts
        for name in re.findall(
            r"\b((?:ansible\.posix|azure\.azcollection|(?:community|containers|google)\.\w+)\.\w+)\b", text
        )
    }
    declared = yaml.safe_load((ROOT / "galaxy.yml").read_text())["dependencies"]
    assert {name.rpartition(".")[0] for name in used} == set(declared)


def test_a_changelog_can_be_made_of_the_fragments() -> None:
    """What a release would be refused for, which is found out on its day otherwise."""
    lint = [sys.executable, "-m", "antsibull_changelog", "lint"]
    done = subprocess.run(lint, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [
        path
        for path in (ROOT / "changelogs/fragments").glob("*.yml")
        if "release_summary" in yaml.safe_load(path.read_text())
    ]
    assert len(told) == 1, f"a release has one summary, and these have one: {told}"
