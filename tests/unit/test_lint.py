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

# Notes how it was called, and refuses what has a word in it.
PROGRAM = """#!/bin/sh
echo "$*" >> {log}
shift 2
! grep -q broken "$@"
"""


class Ran(Exception):
    """ansible-playbook would have been started by itself."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two playbooks, an inventory and a role; the directory of the stand-in is in it, too."""
    repository, place = tmp_path / "repository", tmp_path / "place"
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
    place.mkdir()
    real = tmp_path / "bin"
    real.mkdir()
    (real / "ansible-playbook").write_text(PROGRAM.format(log=tmp_path / "log"))
    (real / "ansible-playbook").chmod(0o755)
    monkeypatch.setattr(lint, "ROOT", repository)
    monkeypatch.setenv("PATH", f"{place}:{real}:{os.environ['PATH']}")

    def execv(program: str, argv: list[str]) -> t.NoReturn:
        raise Ran(f"{program} {argv[-1]}")

    monkeypatch.setattr(os, "execv", execv)
    return place


def role_play(place: Path, role: str) -> str:
    path = place / "play.yml"
    path.write_text("\n---" + lint.PLAY.format(role))
    return str(path)


def test_what_passed_in_one_run_is_not_run_again(place: Path) -> None:
    repository = lint.ROOT
    for path in ("play.yml", "site.yml", f"{repository}/site.yml", "roles/../play.yml"):
        lint.stand_in(place, [*lint.CHECK, str(repository / path)])
    lint.stand_in(place, [*lint.CHECK, role_play(place, "roles/r")])
    lint.stand_in(place, ["--syntax-check", str(repository / "play.yml")])
    (call,) = (place.parent / "log").read_text().splitlines()
    assert call == f"--syntax-check -vv play.yml site.yml {place}/roles.yml"


def test_what_was_not_in_it_is_run_by_itself(place: Path) -> None:
    real = place.parent / "bin/ansible-playbook"
    with pytest.raises(Ran, match=f"{real} .*tasks.yml"):
        lint.stand_in(place, [*lint.CHECK, str(lint.ROOT / "tasks.yml")])
    with pytest.raises(Ran):
        lint.stand_in(place, [*lint.CHECK, role_play(place, "roles/other")])
    with pytest.raises(Ran):
        lint.stand_in(place, [*lint.CHECK, "--extra-vars", "{}", str(lint.ROOT / "play.yml")])
    with pytest.raises(Ran):
        lint.stand_in(place, ["--version"])


@pytest.mark.parametrize("path", ["play.yml", "site.yml"])
def test_when_one_is_wrong_each_is_run_by_itself(place: Path, path: str) -> None:
    with (lint.ROOT / "site.yml").open("a") as site:
        site.write("- broken\n")
    with pytest.raises(Ran):
        lint.stand_in(place, [*lint.CHECK, str(lint.ROOT / path)])
