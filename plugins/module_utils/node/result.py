# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node remembers of having configured itself: no AnsibleModule, private, runs on the node."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

SCHEMA = 1
OK, FAILED, LATE = "ok", "failed", "late"
CODES = {OK: 0, FAILED: 1, LATE: 3}
_SHOWN = 2000


class Result(t.NamedTuple):
    """One attempt; ``machine`` tells a node from another that was made from its disk."""

    digest: str
    machine: str
    started: str
    seconds: float
    status: str
    failed_task: str = ""
    message: str = ""
    changed: int = 0

    def document(self) -> dict[str, t.Any]:
        told = {**self._asdict(), "seconds": round(self.seconds, 1), "message": self.message[:_SHOWN]}
        return {"schema": SCHEMA, **told}

    def line(self) -> str:
        """Say it in one line, fit for CycleCloud's log."""
        what = f"{self.status} after {self.seconds:.0f} s, {self.changed} changes, bundle {self.digest[:12]}"
        why = ": ".join(part for part in (self.failed_task, self.message) if part)
        return " ".join(f"{what}; {why}".split())[:_SHOWN] if why else what


def load(path: Path) -> dict[str, t.Any]:
    """Return a document; one that is not there, or half written by a node that lost its power, says nothing."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def applied(known: t.Mapping[str, t.Any], digest: str, machine: str) -> bool:
    """Return whether this machine has this bundle, as far as it ever got."""
    return (known.get("status"), known.get("digest"), known.get("machine")) == (OK, digest, machine)


def judge(late: bool, rc: int | None, said: str, progress: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """Return how a run ended from its exit status, its last words and what the callback kept of it."""
    changed = int(progress.get("changed") or 0)
    if late:
        return {
            "status": LATE,
            "failed_task": str(progress.get("task") or ""),
            "message": "the budget is over",
            "changed": changed,
        }
    if rc == 0 and not progress.get("hosts"):
        return {"status": FAILED, "message": "node.yml did nothing: no host of the inventory is in slurm_compute"}
    if rc == 0:
        return {"status": OK, "changed": changed}
    task = str(progress.get("failed_task") or "")
    # Without a failed task the words of ansible-playbook itself say why.
    message = str(progress.get("message") or "") or said or f"ansible-playbook ended with {rc}"
    return {"status": FAILED, "failed_task": task, "message": message, "changed": changed}
