# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Slurm command answers which question, per release; private to this collection.

Used by modules on the cluster and by the inventory plugin on the control host, so the command runner is given.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import parse
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.job_state import FINAL
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

Run = t.Callable[[t.List[str]], t.Tuple[int, str, str]]

# scontrol learnt --json in 23.02; before, only sinfo printed whole nodes, and since, sinfo prints groups of nodes.
_SCONTROL_JSON = (23, 2)


class Reader:
    """Reads the state of the cluster; raises SlurmError when Slurm does not answer."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def _ask(self, argv: list[str]) -> str:
        rc, out, err = self._run(argv)
        if rc:
            raise SlurmError(f"{' '.join(argv)} failed with {rc}: {(err or out).strip()}")
        return out

    def _json_or_text(self, argv: list[str], read: t.Callable[[str], list[parse.Record]]) -> list[parse.Record] | None:
        """Some builds lack the JSON plugin, so that a failing ``--json`` says nothing about the cluster."""
        rc, out, dummy = self._run(argv)
        try:
            return None if rc else read(out)
        except (SlurmError, KeyError):
            return None

    def version(self) -> str:
        return parse.version(self._ask(["scontrol", "--version"]))

    def controllers(self) -> list[parse.Record]:
        """``scontrol ping`` exits with 1 when a controller is down, and that is an answer."""
        dummy, out, err = self._run(["scontrol", "ping"])
        found = parse.controllers(out)
        if not found:
            raise SlurmError(f"scontrol ping named no controller: {(err or out).strip()}")
        return found

    def nodes(self) -> list[parse.Record]:
        modern = parse.release(self.version()) >= _SCONTROL_JSON
        argv = ["scontrol", "show", "nodes", "--json"] if modern else ["sinfo", "-a", "--json"]
        found = self._json_or_text(argv, parse.nodes_from_json)
        return parse.nodes_from_text(self._ask(["scontrol", "show", "node", "-a", "-o"])) if found is None else found

    def partitions(self) -> list[parse.Record]:
        return parse.partitions(self._ask(["scontrol", "show", "partition", "-a", "-o"]))

    def jobs(self) -> list[parse.Record]:
        """Jobs that wait or run; 22.05 prints ended jobs as well."""
        found = self._json_or_text(["squeue", "-a", "--json"], parse.jobs_from_json)
        if found is None:
            found = parse.jobs_from_text(self._ask(["squeue", "-a", "-h", "-o", parse.SQUEUE_FORMAT]))
        return sorted((job for job in found if job["state"] not in FINAL), key=lambda job: job["job_id"])
