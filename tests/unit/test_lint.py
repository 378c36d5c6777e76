# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands for ansible-playbook below ansible-lint says nothing that ansible-playbook did not say."""

from __future__ import annotations

import os
import subprocess
import typing as t
from pathlib import Path

import lint
import pytest
from stand_in import stand_in


class Ran(Exception):
    """ansible-playbook would have been started by itself."""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two playbooks, an inventory and a role; the directory of the stand-in is in it, too."""
    repository, directory = tmp_path / "repository", tmp_path / "place"
    for name, text in {
        "play.yml": "---\n# First.\n- name: A\n  hosts: all\n",
        "site.yml": "---\n- import_playbook: play.yml\n",
        "hosts.yml": "---\nall:\n  hosts:\n    a:\n",
        "tasks.yml": "---\n- name: A\n  ping:\n",
        "roles/r/tasks/main.yml": "---\n",
    }.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    directory.mkdir()
    real = tmp_path / "bin"
    real.mkdir()
    stand_in(real / "ansible-playbook", "playbook_syntax.sh", calls=tmp_path / "log")
    monkeypatch.setattr(lint, "ROOT", repository)
    monkeypatch.setenv("PATH", f"{directory}:{real}:{os.environ['PATH']}")

    def execv(program: str, argv: list[str]) -> t.NoReturn:
        raise Ran(f"{program} {argv[-1]}")

    monkeypatch.setattr(os, "execv", execv)
    return directory


def role_play(directory: Path, role: str) -> str:
    path = directory / "play.yml"
    path.write_text("\n---" + lint.PLAY.format(role))
    return str(path)


def test_what_passed_in_one_run_is_not_run_again(directory: Path) -> None:
    repository = lint.ROOT
    for path in ("play.yml", "site.yml", f"{repository}/site.yml", "roles/../play.yml"):
        lint.stand_in(directory, [*lint.CHECK, str(repository / path)])
    lint.stand_in(directory, [*lint.CHECK, role_play(directory, "roles/r")])
    lint.stand_in(directory, ["--syntax-check", str(repository / "play.yml")])
    (call,) = (directory.parent / "log").read_text().splitlines()
    assert call == f"--syntax-check -vv play.yml site.yml {directory}/roles.yml"


def test_what_was_not_in_it_is_run_by_itself(directory: Path) -> None:
    real = directory.parent / "bin/ansible-playbook"
    with pytest.raises(Ran, match=f"{real} .*tasks.yml"):
        lint.stand_in(directory, [*lint.CHECK, str(lint.ROOT / "tasks.yml")])
    with pytest.raises(Ran):
        lint.stand_in(directory, [*lint.CHECK, role_play(directory, "roles/other")])
    with pytest.raises(Ran):
        lint.stand_in(directory, [*lint.CHECK, "--extra-vars", "{}", str(lint.ROOT / "play.yml")])
    with pytest.raises(Ran):
        lint.stand_in(directory, ["--version"])


@pytest.mark.parametrize("path", ["play.yml", "site.yml"])
def test_when_one_is_wrong_each_is_run_by_itself(directory: Path, path: str) -> None:
    with (lint.ROOT / "site.yml").open("a") as site:
        site.write("- broken\n")
    with pytest.raises(Ran):
        lint.stand_in(directory, [*lint.CHECK, str(lint.ROOT / path)])
