# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the power programs do: create, remove, report what failed, and put right what differs. Private."""

from __future__ import annotations

import json
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power import decide
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.config import Config
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.provider import PowerError, Provider
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.power.slurm import Slurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT

Say = t.Callable[[str], None]


class Actions:
    """One run of a program; every step says what it did."""

    def __init__(self, config: Config, provider: Provider, slurm: Slurm, say: Say) -> None:
        self.config, self.provider, self.slurm, self.say = config, provider, slurm, say

    def resume(self, names: t.Sequence[str]) -> bool:
        """Create what Slurm wants; a node that the cloud refuses loses its job to the queue, the others go on."""
        strange = {name: "no group of the configuration holds it" for name in names if name not in self.config.nodes}
        wanted = [self.config.nodes[name] for name in names if name not in strange]
        try:
            answer = self.provider.create(wanted) if wanted else {}
        except PowerError as exc:
            answer = {node.name: str(exc) for node in wanted}
        failed = {**strange, **{name: error for name, error in answer.items() if error}}
        made = [name for name in names if name not in failed]
        if made:
            self.say(f"created {' '.join(made)}")
        for error in sorted(set(failed.values())):
            self.fail([name for name in failed if failed[name] == error], f"not created: {error}")
        return not failed

    def fail(self, names: t.Sequence[str], cause: str) -> None:
        """Take nodes out of service, and have Slurm count them as switched off."""
        self.say(f"{' '.join(names)} {cause}")
        self.slurm.down(names, decide.worded(cause))
        self.slurm.power_down(names)

    def suspend(self, names: t.Sequence[str]) -> bool:
        """Remove what Slurm does not want; a node's reason and drain are left as they are."""
        mine = [name for name in names if name in self.config.nodes]
        answer = self.provider.delete(mine) if mine else {}
        done = [name for name in mine if not answer.get(name)]
        if done:
            self.say(f"removed {' '.join(done)}")
        for name, error in answer.items():
            if error:
                self.say(f"{name} not removed (the next sweep tries again): {error}")
        return len(done) == len(mine)

    def resume_fail(self, names: t.Sequence[str]) -> bool:
        """Say why nodes did not come, and remove what is there of them; their jobs are in the queue again."""
        try:
            seen = self.provider.instances()
        except PowerError as exc:
            seen = dict.fromkeys(names, f"unknown ({exc})")
        nodes = {node["name"]: node for node in self.slurm.nodes()}
        for name in names:
            cause = f"not ready within ResumeTimeout, its instance was {seen.get(name, 'gone')}"
            self.say(f"{name} {cause}")
            if name in nodes and not nodes[name]["drained"] and (nodes[name]["reason"] or decide.LATE) == decide.LATE:
                self.slurm.update([name], f"reason={decide.worded(cause)}")
        return self.suspend(names)

    def sweep(self, now: float) -> bool:
        """Put right what differs between the cloud and Slurm."""
        instances = self.provider.instances()  # before Slurm, which may want one by then
        nodes = [{**node, "retry": self._retry(node)} for node in self.slurm.nodes()]
        found = decide.decide(nodes, instances, self.config.nodes, now)
        if found.stray:
            self.say(f"nobody wants {' '.join(found.stray)}")
            self._delete(found.stray)
        for name in self._twice(found.gone):
            self.fail([name], found.gone[name])
        self.slurm.power_down(found.off)
        if found.back:
            self.say(f"tries {' '.join(found.back)} again")
            self.slurm.resume(found.back)
        return True

    def _delete(self, names: t.Sequence[str]) -> None:
        for name, error in self.provider.delete(names).items():
            self.say(f"{name} {f'not removed: {error}' if error else 'removed'}")

    def _twice(self, gone: t.Mapping[str, str]) -> list[str]:
        """Which nodes the sweep before this one missed as well: one wrong answer of a cloud shall cost no job."""
        path = Path(self.config.state_dir) / "gone.json"
        try:
            before = set(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            before = set()
        path.write_text(json.dumps(sorted(gone)), encoding="utf-8")
        return sorted(before & set(gone))

    def _retry(self, node: t.Mapping[str, t.Any]) -> float:
        """When a node that failed may be tried again."""
        try:
            failed = time.mktime(time.strptime(node["reason_time"] or "", TIME_FORMAT))
        except ValueError:
            return 0.0
        return failed + self.config.retry_after
