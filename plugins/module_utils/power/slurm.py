# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that the power programs give Slurm. Private.

The one-line text is the same from 22.05 to 26.05.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.provider import PowerError, Run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import parse
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError

_TIMEOUT = 60.0


class Slurm:
    """Slurm's own view of its nodes, and the changes that we may make to it."""

    def __init__(self, run: Run = _command.run) -> None:
        self._run = run

    def _ask(self, argv: t.Sequence[str]) -> str:
        done = self._run(argv, _TIMEOUT, environment={"SLURM_TIME_FORMAT": TIME_FORMAT})
        if done.problem:
            raise PowerError(f"{' '.join(argv)} failed: {done.problem}")
        return done.out

    def nodes(self) -> list[parse.Record]:
        """Read all nodes, also those that are switched off."""
        argv = ["scontrol", "show", "node", "-a", "-o"]
        try:
            found = parse.nodes_from_text(self._ask(argv))
        except (SlurmError, KeyError) as exc:
            raise PowerError(f"{' '.join(argv)} printed what cannot be read: {exc}") from exc
        if not found:
            raise PowerError(f"{' '.join(argv)} named no node")
        return found

    def down(self, names: t.Sequence[str], reason: str) -> None:
        """Take nodes out of service: their jobs are requeued, and they get no others."""
        self.update(names, "state=DOWN", f"reason={reason}")

    def power_down(self, names: t.Sequence[str]) -> None:
        """Have Slurm count nodes as switched off; it calls its SuspendProgram for them."""
        self.update(names, "state=POWER_DOWN")

    def resume(self, names: t.Sequence[str]) -> None:
        """Give nodes back to the scheduler."""
        self.update(names, "state=RESUME")

    def update(self, names: t.Sequence[str], *changes: str) -> None:
        """Change nodes; none is no change."""
        if names:
            self._ask(["scontrol", "update", f"nodename={compress(names)}", *changes])
