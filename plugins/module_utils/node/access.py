# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How checks touch the node that they run on: private, stdlib only, also packed into the node agent."""

from __future__ import annotations

import shutil
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run

# How checks touch the node that they run on.


Runner = t.Callable[..., Outcome]


class BrokenError(Exception):
    """The check could not measure."""


class NodeAccess:
    """How checks read files and run programs of the node; tests put another one in its place."""

    def __init__(self, timeout: float, runner: Runner = run) -> None:
        self.timeout, self._run = timeout, runner

    def read(self, path: str) -> str:
        return Path(path).read_text()

    def exists(self, path: str) -> bool:
        return not self.ask(["test", "-e", path]).rc

    def now(self) -> float:
        return time.time()

    def ask(self, argv: t.Sequence[str], data: str | None = None) -> Outcome:
        """Run a program whose exit status is an answer; one that gives none is broken."""
        path = shutil.which(argv[0], path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        if path is None:
            raise BrokenError(f"{argv[0]} is not installed")
        outcome = self._run([path, *argv[1:]], self.timeout, data)
        if outcome.rc is None:
            raise BrokenError(outcome.problem)
        return outcome

    def get(self, argv: t.Sequence[str], data: str | None = None) -> str:
        """Run a program that has to succeed."""
        outcome = self.ask(argv, data)
        if outcome.problem:
            raise BrokenError(f"{' '.join(argv)}: {outcome.problem}")
        return outcome.out
