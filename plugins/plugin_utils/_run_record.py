# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run record behind the callback: what a run does, stage by stage. Private."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_results import JsonDict, failure_text, pick
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import count


def timestamp(seconds: float) -> str:
    """Return ISO 8601 in UTC with whole seconds."""
    moment = datetime.datetime.fromtimestamp(int(seconds), tz=datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def workflow_run(variables: t.Mapping[str, t.Any]) -> str:
    """Name the run that AWX's extra variables tell of: the whole workflow, or a job by itself; nothing without AWX."""
    number = variables.get("awx_workflow_job_id") or variables.get("awx_job_id")
    return f"awx-{number}" if number else ""


def run_name(seconds: float) -> str:
    """Name a run that was not given a name: names sort by time."""
    return timestamp(seconds).replace("-", "").replace(":", "")


class Recorder:
    """Collect what one ``ansible-playbook`` process does, stage by stage."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.document: JsonDict = {"stages": [], "checks": [], "training": [], "nodes": {}}
        self.stage: JsonDict | None = None
        self._began = 0.0
        self._seen: list[JsonDict] = []

    def enter(self, name: str | None, now: float) -> None:
        """Begin the stage of a play; consecutive plays with one stage name are one stage."""
        if self.stage is not None and self.stage["stage"] == name:
            return
        self.leave(now)
        if name:
            self._began, self._seen = now, []
            self.stage = {"run": self.run, "stage": name, "start": timestamp(now), "seconds": 0.0, "state": "running"}
            self.stage.update(hosts=[], tasks=0, changes={}, failures={}, verdicts={}, skipped=None)
            self.document["stages"].append(self.stage)

    def tick(self, now: float) -> None:
        """Note how far the current stage is, so that a killed run leaves its time behind."""
        if self.stage is not None:
            self.stage["seconds"] = round(now - self._began, 1)

    def leave(self, now: float) -> None:
        """End the current stage."""
        if self.stage is not None:
            # Ansible goes through all plays that are left when hosts fail in different plays, and says nothing of it.
            self.skip("none of its tasks was run")
            self.tick(now)
            self.stage["state"] = "failed" if self.stage["failures"] else "done"
            self.stage = None

    def settle(self, now: float) -> None:
        """Say how the current stage stands before its record is handed on: a failure that was seen is not running."""
        if self.stage is not None:
            self.tick(now)
            self.stage["state"] = "failed" if self.stage["failures"] else "running"

    def stages(self) -> set[str]:
        """Return the names of the stages so far."""
        return {stage["stage"] for stage in self.document["stages"]}

    def cluster(self, name: t.Any, sku: t.Any) -> None:
        """Name the cluster and its machine type; what is not told or still a template changes nothing."""
        for key, value in (("cluster", name), ("sku", sku)):
            is_known = value and "{{" not in str(value)
            self.document[key] = str(value) if is_known else self.document.get(key)

    def task(self) -> None:
        """Count a task."""
        if self.stage is not None:
            self.stage["tasks"] += 1

    def skip(self, reason: str) -> None:
        """Note why a stage did nothing."""
        if self.stage is not None and not self.stage["tasks"]:
            self.stage["skipped"] = self.stage["skipped"] or reason

    def result(self, host: str, result: t.Mapping[str, t.Any], gathered: bool = False) -> None:
        """Take in a task result of a host."""
        parts = pick(result, gathered)
        if parts.facts:
            self.document["nodes"][host] = parts.facts
        if self.stage is None:
            return
        if host not in self.stage["hosts"]:
            self.stage["hosts"].append(host)
        if result.get("changed"):
            self.stage["changes"][host] = self.stage["changes"].get(host, 0) + 1
        self._seen += [{"node": host, **check, "run": self.run} for check in parts.checks]
        self.stage["verdicts"] = count(self._seen)
        self.document["checks"] += [{"node": host, **check, "run": self.run} for check in parts.checks]
        self.document["training"] += [{**item, "run": self.run} for item in parts.training]

    def failure(self, host: str, result: t.Mapping[str, t.Any], task: str) -> None:
        """Take in a failed or unreachable host."""
        self.result(host, result)
        if self.stage is not None:
            self.stage["failures"][host] = f"{task}: {failure_text(result)}"

    def forgive(self, hosts: t.Iterable[str]) -> None:
        """Drop failures of hosts that Ansible counts as recovered at the end (rescued)."""
        for stage in self.document["stages"]:
            for host in hosts:
                stage["failures"].pop(host, None)
            if stage["state"] == "failed" and not stage["failures"]:
                stage["state"] = "done"
