# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""bootstrap.sh refuses what it should before it changes anything; the scripts of the doors are written and read."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_playbook import play_here

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/node_bundle"
BUNDLE = {
    "name": "hpcai-node-0123456789ab.tar.gz",
    "folder": "hpcai-node-0123456789ab",
    "path": "/d/hpcai-node-0123456789ab.tar.gz",
    "sha256": "ef" * 32,
    "digest": "0123456789ab" + "cd" * 26,
    "version": "1.0.19088743",
}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    home = tmp_path / "hpcai-node-x"
    (home / "site").mkdir(parents=True)
    shutil.copy(ROLE / "files/bootstrap.sh", home)
    (home / "site/a.py").write_text("a = 1\n")
    names = ["bootstrap.sh", "site/a.py"]
    sums = "".join(f"{hashlib.sha256((home / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    (home / "SHA256SUMS").write_text(sums)
    return home


def bootstrap(home: Path, *words: str, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        ["/bin/sh", str(home / "bootstrap.sh"), *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def damage(home: Path, how: str) -> None:
    if how == "changed":
        (home / "site/a.py").write_text("a = 2\n")
    elif how == "lost":
        (home / "site/a.py").unlink()
    elif how == "added":
        (home / "site/b.py").touch()
    elif how == "linked":
        (home / "site/b.py").symlink_to(home / "site/a.py")
    elif how == "no sums":
        (home / "SHA256SUMS").unlink()
    else:
        (home / "SHA256SUMS").write_text("")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may configure a node")
@pytest.mark.parametrize("how", ["changed", "lost", "added", "linked", "no sums", "empty sums"])
def test_a_damaged_bundle_is_refused(bundle: Path, how: str) -> None:
    damage(bundle, how)
    rc, said = bootstrap(bundle)
    assert rc == 2
    assert "refused, nothing was changed" in said
    assert "damaged" in said or "SHA256SUMS is missing" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may configure a node")
def test_another_bundle_than_asked_is_refused(bundle: Path) -> None:
    rc, said = bootstrap(bundle, "--budget", "5", "--digest", "beef")
    assert (rc, "wanted is beef" in said) == (2, True)
    assert bootstrap(bundle, "--digest")[0] == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may configure a node")
def test_a_node_without_python_is_refused(bundle: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("cat", "cut", "dirname", "find", "head", "id", "sha256sum", "tr", "wc"):
        found = shutil.which(name)
        assert found
        (tools / name).symlink_to(found)
    rc, said = bootstrap(bundle, PATH=str(tools))
    assert (rc, "no Python 3.11" in said) == (2, True)


def render(tmp_path: Path, **given: t.Any) -> dict[str, str]:
    """Return what the role writes for the doors, by file name."""
    for folder in ("files", "templates"):
        (tmp_path / folder).symlink_to(ROLE / folder)
    includes = [{"ansible.builtin.include_vars": str(ROLE / name / "main.yml")} for name in ("defaults", "vars")]
    told = {"content": "{{ __node_bundle_doors | to_json }}", "dest": str(tmp_path / "doors.json")}
    tasks = [*includes, {"ansible.builtin.copy": told}]
    play_here(tmp_path, tasks, {"__node_bundle": BUNDLE, "node_bundle_dest": "/d", **given})
    found = json.loads((tmp_path / "doors.json").read_text())
    return {Path(path).name: text for path, text in found.items()}


def read_by_shellcheck(tmp_path: Path, *texts: str) -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("no shellcheck; make host-packages installs it")
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.sh").write_text(text)
        done = subprocess.run(
            ["shellcheck", "--shell=sh", f"{number}.sh"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", 'cp /d/hpcai-node-0123456789ab.tar.gz "$bundle"'),
        ("/shared/of all/", "cp '/shared/of all/hpcai-node-0123456789ab.tar.gz' \"$bundle\""),
        ("https://host/b/", "https://host/b/hpcai-node-0123456789ab.tar.gz"),
        ("gs://bucket/x.tar.gz", "gcloud storage cp gs://bucket/x.tar.gz"),
    ],
)
def test_the_doors_do_the_same(tmp_path: Path, source: str, said: str) -> None:
    doors = render(tmp_path, node_bundle_source=source, node_bundle_before=["mount /shared"])
    script, init = doors["script.sh"], doors["10-hpcai-node.sh"]
    assert said in script
    assert "mount /shared" in script
    assert "mount /shared" not in init
    assert f"jetpack download --project hpcai-node {BUNDLE['name']}" in init
    # The gate is closed before anything is fetched, and what comes after is the same.
    assert script.index("\nhpcai_close_gate\n") < script.index("mount /shared") < script.index(said)
    assert script.partition('echo "ef')[2] == init.partition('echo "ef')[2] != ""
    # What is checked is what is unpacked: nobody who can write to a shared directory comes in between.
    assert 'bundle="$work"/hpcai-node' in script and script.count("bundle=") == 1
    assert f"version = {BUNDLE['version']}" in doors["project.ini"]
    cloud = yaml.safe_load(doors["cloud-config.yml"])
    assert doors["cloud-config.yml"].startswith("#cloud-config\n")
    assert cloud["runcmd"] == [["sh", "-c", script]]
    read_by_shellcheck(tmp_path, script, init, cloud["bootcmd"][0][2])
