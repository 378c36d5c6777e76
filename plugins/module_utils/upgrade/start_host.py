# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Start an upgraded slurmdbd and follow it while it converts its database, for slurm_database_start. Private."""

from __future__ import annotations

import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import daemons
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.dump import settings

UNIT = "slurmdbd"
_PAUSE = 1.0
_SHOWN = 3
_SHOW = ["systemctl", "show", "--property", "ActiveState,SubState,NRestarts,Result", UNIT]


class StartError(Exception):
    """slurmdbd does not run; the text is fit for the user."""


class Starter:
    """``params`` are the module's."""

    def __init__(self, params: t.Mapping[str, t.Any]) -> None:
        self.params = params
        self.log = Path(settings(Path(params["config"]).read_text(errors="replace")).get("logfile", "/dev/null"))

    def needed(self) -> str:
        """Which word systemctl is to be told."""
        found = daemons.seen(run([*daemons.SHOW, UNIT], 60).out).get(UNIT)
        if found is None or not found.active:
            return "start"
        return "" if found.runs in (self.params["version"], "") else "restart"  # it may be converting

    def run(self, word: str) -> dict[str, t.Any]:
        """Start it without waiting for systemd, whose patience ends; then ask until it answers or time is up."""
        begin, offset = time.monotonic(), self.log.stat().st_size if self.log.is_file() else 0
        if word:
            run(["systemctl", "reset-failed", UNIT], 60)
            answer = run(["systemctl", "--no-block", word, UNIT], 60)
            if answer.problem:
                raise StartError(f"systemctl {word} {UNIT} failed: {answer.problem}")
        end = begin + self.params["wait"]
        done = not word and self._answers()  # what restarted it long ago is no failure of this upgrade
        while not done and time.monotonic() < end:
            time.sleep(_PAUSE if word else 0)
            self._refuse_failure(offset)
            done = self._answers()
            word = word or "wait"
        progress = self._said(0 if not offset else max(0, offset - 4096))[-_SHOWN:]
        return {"done": done, "seconds": round(time.monotonic() - begin, 1), "progress": progress}

    @staticmethod
    def _answers() -> bool:
        return not run(["sacctmgr", "-nP", "show", "cluster", "format=cluster"], 30).problem

    def _refuse_failure(self, offset: int) -> None:
        unit = dict(line.split("=", 1) for line in run(_SHOW, 60).out.splitlines() if "=" in line)
        ended = unit.get("ActiveState") in ("failed", "inactive") or unit.get("SubState", "").startswith("auto-restart")
        if not ended and unit.get("NRestarts", "0") == "0":
            return
        run(["systemctl", "stop", UNIT], 600)  # systemd would start it again and again on a database half converted
        said = [line for line in self._said(offset) if "fatal" in line or "error" in line] or self._said(offset)
        raise StartError(f"slurmdbd ended ({unit.get('Result')}). Its log says: {' / '.join(said[-5:]) or 'nothing'}")

    def _said(self, offset: int) -> list[str]:
        if not self.log.is_file():
            return []
        with self.log.open("rb") as handle:
            handle.seek(offset)
            return handle.read().decode(errors="replace").splitlines()
