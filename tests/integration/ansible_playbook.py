# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How tests start ansible-playbook: see forked.py. What it starts on this machine, see warm.py."""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

from forked import run_module
from patience import patience
from warm import Warm

ROOT = Path(__file__).resolve().parents[2]
Ended = subprocess.CompletedProcess[str]
# What only content can cause: other warnings are of an inventory, of a machine or of a module that means to warn.
OUR_FAULT = re.compile(
    r"\[DEPRECATION WARNING\]: [^\[]*? removed (?:from|in) ansible-core"
    r"|\[WARNING\]: (?:Found duplicate mapping key|Falling back to|Found variable using reserved name)[^\[]*"
)


def ansible_playbook(
    *arguments: str | Path,
    cwd: Path,
    env: t.Mapping[str, str],
    python: Path = Path(sys.executable),
    seconds: float = 600,
) -> Ended:
    """Run ansible-playbook in an environment that is given as a whole; return how it ended and what it said."""
    done = run_module("ansible.cli.playbook", *arguments, cwd=cwd, env=env, timeout=patience(seconds), python=python)
    warned = OUR_FAULT.findall(" ".join((done.stdout + done.stderr).split()))
    assert not warned, f"ansible-core warns of what playbooks, roles or plugins here are: {warned}"
    return done


def play_here(
    place: Path,
    tasks: t.Sequence[t.Mapping[str, t.Any]],
    given: t.Mapping[str, t.Any] | None = None,
    *options: str,
    fails: bool = False,
    **environment: str,
) -> Ended:
    """Run tasks on this machine with extra variables, from a clone as its ansible.cfg has it."""
    play = [{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]
    (place / "play.json").write_text(json.dumps(play))
    variables = json.dumps({"ansible_python_interpreter": interpreter(), **(given or {})})
    words = ("--connection=local", "-i", "localhost,", "--extra-vars", variables, *options, "play.json")
    done = ansible_playbook(*words, cwd=place, env=of_clone(place, **environment))
    assert bool(done.returncode) is fails, done.stdout + done.stderr
    return done


@functools.cache
def interpreter() -> str:
    """The interpreter for modules on this machine."""
    warm = Warm(Path(sys.executable))
    atexit.register(warm.close)
    return str(warm.interpreter)


@functools.cache
def few_settings() -> Path:
    """The configuration of a newcomer: where the collection is and nothing else, so that no callback is switched on."""
    directory = Path(tempfile.mkdtemp(dir=ROOT / ".build"))
    atexit.register(shutil.rmtree, directory)
    (directory / "ansible.cfg").write_text(f"[defaults]\ncollections_path = {ROOT / '.build/collections'}\n")
    return directory / "ansible.cfg"


def of_clone(place: Path, **more: str) -> dict[str, str]:
    """The environment of somebody who works in this clone; what is recorded goes to a directory of the test's own."""
    own = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".build/collections"),
        "HPCAI_REPORT_DIR": str(place / "report"),
    }
    return {**os.environ, **own, **more}
