# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The repository of docs/howto/reuse_roles.md, and the environment of somebody who has the collection's tarball."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml
from patience import patience

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/howto/reuse_roles.md"
# A file is a block of YAML below the line that names it.
FILES = re.compile(r"`([\w./]+\.yml)`(?: names[^`]*)?[^`\n]*:\n\n```yaml\n(.*?)```", re.DOTALL)


def write_repository(directory: Path) -> None:
    """Write the files of the page."""
    for name, text in FILES.findall(PAGE.read_text()):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(f"---\n{text}")


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of somebody who has the package ansible and Molecule, and nothing of this tree."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "HPCAI_", "MOLECULE_"))}
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**kept, "HOME": str(home), "PATH": programs, "NO_COLOR": "1", **more}


class Stranger:
    """Somebody with a repository and a home of their own, who installs the tarball as the page says."""

    def __init__(self, directory: Path) -> None:
        self.home, self.repository, self.tarballs = (directory / name for name in ("home", "repository", "tarballs"))
        self.home.mkdir()
        self.tarballs.mkdir()
        write_repository(self.repository)

    def run(self, program: str, *words: str, seconds: float = 600, **more: str) -> str:
        """Run a program in the repository, which has to succeed; return what it printed."""
        done = subprocess.run(
            [str(Path(sys.executable).with_name(program)), *words],
            cwd=self.repository,
            env=environment(self.home, **more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience(seconds),
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def install(self) -> None:
        """Install what the requirements name, from the tarball; the other collections are in the package ansible."""
        self.run("ansible-galaxy", "collection", "build", str(ROOT), "--output-path", str(self.tarballs))
        requirements, (tarball,) = self.repository / "requirements.yml", self.tarballs.iterdir()
        wanted = yaml.safe_load(requirements.read_text())
        (ours,) = wanted["collections"]
        wanted["collections"] = [{"name": ours["name"], "type": "file", "source": str(tarball)}]
        requirements.write_text(yaml.safe_dump(wanted))
        self.run("ansible-galaxy", "collection", "install", "--no-deps", "-r", "requirements.yml")
