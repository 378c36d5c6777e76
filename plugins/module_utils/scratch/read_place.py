# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the files of a machine lie and how its tools are run; tests put a tree in place of ``/``. Private."""

from __future__ import annotations

import os
import shutil
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome, run

# Ansible's become and cron leave the folders of administration out.
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TIMEOUT = 60.0


class Place:
    """A machine's files below ``root``, and its tools."""

    def __init__(self, root: Path = Path("/"), search: str = SEARCH) -> None:
        self.root = root.resolve()
        self.search = search

    def at(self, path: str) -> Path:
        """Return where an absolute path of the machine lies."""
        return self.root / path.lstrip("/")

    def canonical(self, path: str) -> str:
        """Return an absolute path of the machine without symbolic links; the path itself where it leads nowhere."""
        found = os.path.realpath(self.at(path))
        inside = os.path.relpath(found, self.root)
        return path if inside.startswith("..") else f"/{inside}"

    def text(self, path: str, default: str = "") -> str:
        """Return a file of one value without blanks at its ends; the default where it cannot be read."""
        try:
            return self.at(path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return default

    def number(self, path: str) -> int:
        """Return a file of one number; 0 where it holds none."""
        digits = self.text(path)
        return int(digits) if digits.isdecimal() else 0

    def names(self, path: str) -> list[str]:
        """Return what a folder holds, in the order in which people count (nvme2n1 before nvme10n1)."""
        try:
            return sorted((entry.name for entry in self.at(path).iterdir()), key=natural)
        except OSError:
            return []

    def tool(self, name: str) -> str | None:
        """Return the path of a program, None where it is not installed."""
        return shutil.which(name, path=self.search)

    def run(self, argv: t.Sequence[str], timeout: float = TIMEOUT) -> Outcome:
        """Run a program of the machine."""
        return run(argv, timeout, environment={"PATH": self.search})


def natural(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts the numbers in names by their value."""
    parts: list[tuple[int, str]] = []
    digits = ""
    for letter in f"{text}\0":
        if letter.isdecimal():
            digits += letter
            continue
        parts += [(int(digits), "")] if digits else []
        parts.append((-1, letter))
        digits = ""
    return parts
