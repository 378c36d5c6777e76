# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-lint, whose syntax checks of all playbooks and roles are one run of ansible-playbook.

ansible-lint starts ``ansible-playbook --syntax-check`` for each playbook and each role, which is most of what it costs.
``lint.py`` starts ansible-lint with this program in place of ansible-playbook. The first time that it is called it
checks the syntax of all of them in one run. If that passes, it says so for each that was in it; whatever was not, and
all of them when the run fails, go to ansible-playbook one by one, which finds the place.

    lint.py [WORDS]     words of ansible-lint
    lint.py --syntax    that one run alone, with whatever ansible-core is there
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = "HPCAI_LINT"  # the directory with the program that stands for ansible-playbook
CHECK = ["--syntax-check", "-vv"]
# What ansible-lint writes for a role.
PLAY = """
- name: Temporary playbook for role syntax check
  hosts: localhost
  tasks:
    - ansible.builtin.import_role:
        name: {}
"""


def subjects() -> tuple[list[str], list[str]]:
    """Return the playbooks and the roles of this repository."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.yml"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    files = [Path(name) for name in listed if name and (ROOT / name).is_file()]
    playbooks = [str(path) for path in files if is_playbook((ROOT / path).read_text(encoding="utf-8"))]
    roles = sorted({str(path.parents[1]) for path in files if path.match("roles/*/tasks/main.yml")})
    return playbooks, roles


def is_playbook(text: str) -> bool:
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "---"))]
    keys = re.compile(r"(- |  )(hosts|(ansible\.builtin\.)?import_playbook):")
    return bool(lines) and lines[0].startswith("- ") and any(keys.match(line) for line in lines)


def syntax(directory: Path) -> list[str]:
    """Return the words that have ansible-playbook check the syntax of everything in one run."""
    playbooks, roles = subjects()
    together = directory / "roles.yml"
    together.write_text("---" + "".join(PLAY.format(role) for role in roles), encoding="utf-8")
    return [*CHECK, *playbooks, str(together)]


def check_all(directory: Path, program: str) -> list[str]:
    """Check the syntax of everything in one run; return what passed, which is all of it or nothing."""
    done = subprocess.run([program, *syntax(directory)], cwd=ROOT, capture_output=True, check=False)
    playbooks, roles = subjects()
    return playbooks + roles if done.returncode == 0 else []


def subject(path: str) -> str:
    """Return the playbook or role that ansible-lint asks for, as subjects() names it."""
    text = Path(path).read_text(encoding="utf-8") if path.startswith(tempfile.gettempdir()) else ""
    role = re.fullmatch(re.escape("\n---" + PLAY).replace(r"\{\}", r"(\S+)"), text)
    return role[1] if role else os.path.relpath(os.path.realpath(path), ROOT)


def stand_in(directory: Path, argv: list[str]) -> None:
    """Be ansible-playbook."""
    path = os.environ["PATH"].replace(f"{directory}:", "")
    program = shutil.which("ansible-playbook", path=path) or "ansible-playbook"
    if argv[:-1] in (CHECK, CHECK[:1]):  # of what is to be checked, and of what that imports
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            passed = directory / "passed.json"
            if not passed.exists():
                passed.write_text(json.dumps(check_all(directory, program)))
        if subject(argv[-1]) in json.loads(passed.read_text()):
            return
    with (directory / "alone").open("a") as alone:
        alone.write(f"{argv}\n")
    os.environ["PATH"] = path
    os.execv(program, [program, *argv])


def main(words: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="hpcai-lint-") as name:
        directory = Path(name)
        program = directory / "ansible-playbook"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {Path(__file__).resolve()} "$@"\n')
        program.chmod(0o755)
        found = {"PATH": f"{directory}:{Path(sys.executable).parent}:{os.environ['PATH']}", PLACE: str(directory)}
        lint = str(Path(sys.executable).with_name("ansible-lint"))
        done = subprocess.run(
            [lint, *words], cwd=ROOT, env={**os.environ, **found}, stderr=subprocess.PIPE, text=True, check=False
        )
        print(done.stderr, end="", file=sys.stderr)
        status = done.returncode
        # ansible-core says so of templates that a later release of it refuses, and ansible-lint goes on.
        if not status and (warned := re.findall(r"^\[(?:DEPRECATION )?WARNING\]: .*", done.stderr, re.MULTILINE)):
            print("Templates that ansible-core warns of:", *warned, sep="\n  ")
            status = 1
        alone = directory / "alone"
        checked = (
            [line for line in alone.read_text().splitlines() if "--syntax-check" in line] if alone.exists() else []
        )
        if checked and not status:
            print("Syntax that was not checked in one run:", *checked, sep="\n  ")
        return status


def check_syntax() -> int:
    """Check the syntax of everything, and tell what was wrong or how much it was."""
    with tempfile.TemporaryDirectory(prefix="hpcai-syntax-") as name:
        words = [sys.executable, "-m", "ansible.cli.playbook", *syntax(Path(name))]
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    playbooks, roles = subjects()
    print(
        done.stdout if done.returncode else f"The syntax of {len(playbooks)} playbooks and {len(roles)} roles is right."
    )
    return done.returncode


if __name__ == "__main__":
    if PLACE in os.environ:
        stand_in(Path(os.environ[PLACE]), sys.argv[1:])
    elif sys.argv[1:] == ["--syntax"]:
        sys.exit(check_syntax())
    else:
        sys.exit(main(sys.argv[1:]))
