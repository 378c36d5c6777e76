# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection as a user gets it: built, installed, and its playbooks called by their full names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tarball
import yaml
from stand_in import answer
from stranger import environment, write_repository

ROOT = Path(__file__).resolve().parents[3]


def ansible(tmp_path: Path, program: str, *args: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "HPCAI_"))}
    config = tmp_path / "ansible.cfg"  # a configuration of the machine's own says nothing about the collection
    config.write_text(f"[defaults]\ncollections_path = {tmp_path}\n")
    environment.update(ANSIBLE_CONFIG=str(config), ANSIBLE_NOCOLOR="1")
    command = [sys.executable, "-m", f"ansible.cli.{program}", *args]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("installed")
    made = tarball.build(place, ROOT)
    ansible(place, "galaxy", "collection", "install", str(made), "--no-deps", "--collections-path", str(place))
    return place


def test_the_overview_s_commands_install_it_from_a_clone(tmp_path: Path) -> None:
    page = (ROOT / "docs/overview.md").read_text()
    (block,) = (text for text in re.findall(r"```console\n(.*?)```", page, re.DOTALL) if "make build" in text)
    lines = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    assert lines.pop().startswith("ansible-playbook "), "the last one needs machines"
    # A clone with no more than what decides where a collection is installed; make has done what make build does.
    clone, home = tmp_path / "clone", tmp_path / "home"
    (clone / ".build").mkdir(parents=True)
    shutil.copy(ROOT / "ansible.cfg", clone)
    (clone / ".build/collections").symlink_to(ROOT / ".build/collections")
    tarball.build(clone / ".build", ROOT)
    script = "\n".join(
        ["set -e", "make() { :; }", *lines, "ansible-galaxy collection list --format=json hpcai.gpu_cluster"]
    )
    home.mkdir()
    done = subprocess.run(
        ["bash", "-c", script], cwd=clone, env=environment(home), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    listed = json.loads(done.stdout[done.stdout.index("{") :])
    assert f"{home}/.ansible/collections/ansible_collections" in listed, done.stdout


NAMES = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))


@pytest.fixture(scope="module")
def tasks(installed: Path) -> str:
    """What the playbooks would do, all asked for in one go."""
    full = [f"hpcai.gpu_cluster.{name}" for name in NAMES]
    return ansible(installed, "playbook", "-i", str(ROOT / "lab/inventory"), "--list-tasks", *full)


@pytest.mark.parametrize("name", NAMES)
def test_playbook_runs_by_its_full_name(installed: Path, tasks: str, name: str) -> None:
    path = f"{installed}/ansible_collections/hpcai/gpu_cluster/playbooks/{name}.yml"
    (own,) = (part for part in tasks.split("\nplaybook: ") if part.startswith(path))
    assert "TAGS: " in own


def test_nothing_of_the_workshop_is_in_the_tarball(installed: Path) -> None:
    inside = {path.name for path in (installed / "ansible_collections/hpcai/gpu_cluster").iterdir()}
    assert {"README.md", "COPYING", "MANIFEST.json", "inventories", "playbooks", "plugins", "roles"} <= inside
    assert not inside & {".build", ".ci", ".git", ".venv"}


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository of docs/howto/reuse_roles.md, in a directory of its own."""
    place = tmp_path_factory.mktemp("stranger")
    write_repository(place)
    return place


def test_the_stranger_s_page_has_all_files_of_its_scenarios(stranger: Path) -> None:
    wanted = {"slurm": ["create", "destroy", "converge", "verify"], "scratch": ["converge", "verify"]}
    for scenario, names in wanted.items():
        for name in [*names, "inventory", "molecule"]:
            assert (stranger / "molecule" / scenario / f"{name}.yml").is_file(), f"{scenario}/{name}.yml"
    (collection,) = yaml.safe_load((stranger / "requirements.yml").read_text())["collections"]
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text())
    assert collection["name"] == f"{galaxy['namespace']}.{galaxy['name']}"
    assert collection["version"] == galaxy["version"]


# The role of the first play has its inputs then; those of the others are behind it.
@pytest.mark.parametrize("scenario, hosts", [("slurm", {"ctl", "c1"}), ("scratch", {"scratch-test"})])
def test_the_stranger_s_playbook_goes_as_far_as_its_hosts(
    installed: Path, stranger: Path, tmp_path: Path, scenario: str, hosts: set[str]
) -> None:
    folder = tmp_path / scenario
    shutil.copytree(stranger / "molecule" / scenario, folder)
    nowhere = answer(tmp_path / "ssh", status=255)
    words = ["-m", "ansible.cli.playbook", "-i", "inventory.yml", "--check", "converge.yml"]
    words += ["-e", f"ansible_connection=ssh ansible_ssh_executable={nowhere}"]
    command = [sys.executable, *words]
    env = environment(tmp_path, ANSIBLE_COLLECTIONS_PATH=str(installed))
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    unreachable = set(re.findall(r"^fatal: \[([\w-]+)\]: UNREACHABLE", done.stdout, re.MULTILINE))
    assert unreachable == hosts, done.stdout + done.stderr
    assert "FAILED!" not in done.stdout, done.stdout
