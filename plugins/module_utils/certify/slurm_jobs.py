# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's commands as the coordinator of a certification uses them. Private, stdlib only."""

from __future__ import annotations

import contextlib
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job import submitted_id
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.read import Reader
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SEPARATOR, SlurmError, text_or_none

Run = t.Callable[[t.List[str]], t.Tuple[int, str, str]]
# What sbatch says when it would take the same job later; whatever else it says it will say again.
_LATER = re.compile(
    r"contact slurm controller|timed out|temporarily|connection|transport endpoint|zero bytes|try again"
    r"|Max(?:Submit|Job)|backup controller|in standby",
    re.I,
)
_ARRAY_SIZE = re.compile(r"^MaxArraySize\s*=\s*(\d+)", re.M)


class RefusedError(SlurmError):
    """Slurm will never take this job."""


class Row(t.NamedTuple):
    """One job or array task that Slurm still has; tasks of an array that wait are one row."""

    job_id: int
    name: str
    state: str
    host: str

    @property
    def waits(self) -> bool:
        return self.state == "PENDING"


class Slurm:
    """Asks and tells Slurm as one user; raises SlurmError where Slurm says no or nothing."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.reader = Reader(run)

    def nodes(self) -> list[Json]:
        return self.reader.nodes()

    def partitions(self) -> list[Json]:
        return self.reader.partitions()

    def topology(self) -> str:
        """Return what Slurm says of its switches; a cluster without a topology plugin says nothing of use."""
        rc, out, dummy = self._run(["scontrol", "show", "topology"])
        return "" if rc else out

    def array_size(self) -> int:
        """Return how many tasks an array may have; Slurm's default when it does not say."""
        rc, out, dummy = self._run(["scontrol", "show", "config"])
        match = None if rc else _ARRAY_SIZE.search(out)
        return max(1, int(match.group(1)) - 1) if match else 1000

    def submit(self, options: t.Sequence[str], script: Path) -> int:
        rc, out, err = self._run(["sbatch", *options, str(script)])
        if rc:
            said = (err or out).strip()
            kind = SlurmError if _LATER.search(said) or not said else RefusedError
            raise kind(f"sbatch refused {script.stem}: {said}")
        return submitted_id(out)

    def queue(self, names: t.Container[str]) -> list[Row]:
        """Return our jobs of these names, array tasks that wait as one row; ``host`` has a job's first task."""
        return [row for row in self._rows() if row.name in names]

    def held(self, run: str, names: t.Container[str]) -> bool:
        """Say whether other jobs of a run still hold nodes, if only until Slurm has tidied up after them."""
        return any(row.name.startswith(run) and row.name not in names and not row.waits for row in self._rows())

    def _rows(self) -> list[Row]:
        argv = ["squeue", "-h", "-a", "--me", "-o", SEPARATOR.join(["%A", "%F", "%T", "%B", "%j"])]
        rc, out, err = self._run(argv)
        if rc:
            raise SlurmError(f"squeue failed: {(err or out).strip()}")
        rows = [line.split(SEPARATOR, 4) for line in out.splitlines()]
        return [_row(cells) for cells in rows if len(cells) == 5]

    def cancel(self, job_id: int, waiting: bool = False) -> None:
        """End a job, or those of its tasks that have not begun; one that has ended already is no trouble."""
        with contextlib.suppress(SlurmError):
            self._run(["scancel", *(["--state=PENDING"] if waiting else []), str(job_id)])


def _row(cells: t.Sequence[str]) -> Row:
    job_id = int(cells[1]) if cells[1].isdigit() else int(cells[0])
    return Row(job_id, cells[4], cells[2], text_or_none(cells[3]) or "")
