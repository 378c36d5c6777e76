# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tarball that users install: what is in it, and how large it is."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LARGEST = 1_750_000  # bytes


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
