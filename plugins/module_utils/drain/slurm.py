# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The three commands that the reconciler gives Slurm. Private.

The one-line text is the same from 22.05 to 26.05 and a hundredth of the JSON.
"""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import DrainError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import parse
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT, SlurmError, fields

Run = t.Callable[[t.Sequence[str]], _command.Outcome]

_TIMEOUT = 30.0  # slurmctld that is busy answers late; one that is gone must not hold the pass for ever
_SHOW = ("scontrol", "show")


def command(argv: t.Sequence[str]) -> _command.Outcome:
    """Run scontrol; what its user has set would change what it prints."""
    return _command.run(argv, _TIMEOUT, environment={"SLURM_TIME_FORMAT": TIME_FORMAT})


def nodes(run: Run) -> list[parse.Record]:
    """Read all nodes; no nodes is no answer, for nobody reconciles an empty cluster."""
    argv = [*_SHOW, "node", "-a", "-o"]
    done = run(argv)
    if done.problem:
        raise DrainError(f"{' '.join(argv)} failed: {done.problem}")
    try:
        found = parse.nodes_from_text(done.out)
    except (SlurmError, KeyError) as exc:
        raise DrainError(f"{' '.join(argv)} printed what cannot be read: {exc}") from exc
    if not found:
        raise DrainError(f"{' '.join(argv)} named no node")
    return found


def leaves(run: Run) -> dict[str, str]:
    """Which leaf switch (or block) each node is on; nothing where Slurm has not been told."""
    done = run([*_SHOW, "topology"])
    return {} if done.problem else leaves_from_text(done.out)


def leaves_from_text(text: str) -> dict[str, str]:
    """Read topology/tree (switches of level 0) and topology/block."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        values = fields(line)
        leaf = values.get("SwitchName") if values.get("Level") == "0" else values.get("BlockName")
        try:
            names = parse.hosts(values.get("Nodes")) if leaf else []
        except SlurmError:
            names = []
        found.update({name: leaf for name in names if leaf})
    return found
