# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tarball that users install: what is in it, and how large it is."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import typing as t
from pathlib import Path

import tarball as tarball_tool
import yaml

ROOT = Path(__file__).parents[2]
LARGEST = 1_500_000  # bytes


def test_the_tarball_holds_what_users_run_and_nothing_else(tmp_path: Path) -> None:
    tarball = tarball_tool.build(tmp_path, ROOT)
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


def packed(names: t.Sequence[str], seconds: int) -> bytes:
    """Return a tarball as ansible-galaxy makes one, its files in this order and of this time."""
    listed = {"files": [{"name": name} for name in names], "format": 1}
    texts = {"FILES.json": json.dumps(listed), "MANIFEST.json": '{"file_manifest_file": {"chksum_sha256": ""}}'}
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name in ["MANIFEST.json", "FILES.json", *names]:
            member = tarfile.TarInfo(name)
            member.mtime = seconds + 0.25  # as of a file
            if name == "d":
                member.type = tarfile.DIRTYPE
            text = b"" if name == "d" else texts.get(name, name).encode()
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return made.getvalue()


def test_the_same_files_make_the_same_bytes() -> None:
    role = ["d/README.md", "d/defaults.yml", "d/meta/specs.yml"]
    made = tarball_tool.settled(packed(["b", "d", *role, "d/c", "a"], 1), 7)
    assert made == tarball_tool.settled(packed(["d", "a", "d/c", *role[::-1], "b"], 2), 7)
    assert made != tarball_tool.settled(packed(["d", "a", "d/c", *role[::-1], "b"], 2), 8)
    with tarfile.open(fileobj=io.BytesIO(made)) as archive:
        members = {member.name: member for member in archive}
        texts = {name: stream.read() for name in members if (stream := archive.extractfile(name))}
    ordered = ["a", "b", "FILES.json", "MANIFEST.json", "d/c", "d/README.md", "d/defaults.yml", "d/meta/specs.yml"]
    assert [*members] == ["d", *ordered] and members["d"].isdir()
    assert [entry["name"] for entry in json.loads(texts["FILES.json"])["files"]] == sorted(
        ["a", "b", "d", "d/c", *role]
    )
    digest = json.loads(texts["MANIFEST.json"])["file_manifest_file"]["chksum_sha256"]
    assert digest == hashlib.sha256(texts["FILES.json"]).hexdigest() and texts["d/c"] == b"d/c"


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
