# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Callback that keeps the run record."""

from __future__ import annotations

DOCUMENTATION = r"""
name: run_record
type: notification
short_description: Record what a run did and found
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Writes C(run.json), from which the filter P(hpcai.gpu_cluster.report_html#filter) draws the report.
  - A play belongs to the stage that its play variable C(run_stage) names; a play without it is not recorded.
  - Of the results of tasks it keeps check records (C(check) and C(checks)), facts of trainings (C(training)), whether
    something changed, why something failed, and a few facts of each node. Nothing else is written, and nothing of a
    result that C(no_log) hides.
  - The file is replaced in one step, so that it is complete at every moment and a run that was killed leaves behind how
    far it came.
  - At the end of a playbook it prints one line for each stage of the run so far.
  - In check mode nothing is written.
  - So that no worker of Ansible does it for its one task, it loads plugins and what modules are sent with before the
    first of them begins. From then on the lookup P(ansible.builtin.template#lookup) gives templates a host's variables
    themselves and no copies of all that is in them, as the module M(ansible.builtin.template) does.
extends_documentation_fragment: [hpcai.gpu_cluster.report_dir]
requirements:
  - enabled in the configuration, C(callbacks_enabled=hpcai.gpu_cluster.run_record)
options:
  run:
    description:
      - Name of the run. Playbooks that are started one after the other with the same name count as one run. In AWX
        the default is C(awx-) and the number of the workflow's job, or that of the job where there is no workflow.
        Else it is the time at which the playbook started.
    type: str
    env:
      - name: HPCAI_RUN
    ini:
      - section: callback_run_record
        key: run
  keep:
    description:
      - Number of runs that the record keeps. Older ones are dropped.
    type: int
    default: 10
    env:
      - name: HPCAI_KEEP_RUNS
    ini:
      - section: callback_run_record
        key: keep
seealso:
  - plugin: hpcai.gpu_cluster.report_dir
    plugin_type: lookup
  - plugin: hpcai.gpu_cluster.report_html
    plugin_type: filter
"""

import time
import typing as t
from pathlib import Path

from ansible import context
from ansible.plugins.callback import CallbackBase

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._run_file import RecordError, store
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preload import preload
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_record import Recorder, run_name, workflow_run
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_results import is_rescued
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_summary import summary

GATHER = (
    *("gather_facts", "ansible.builtin.gather_facts", "setup", "ansible.builtin.setup", "ansible.legacy.setup"),
    "hpcai.gpu_cluster.node_info",
)
KEEP = ("run_results", "hpcai.gpu_cluster.run_results")
WRITE_EVERY = 2.0


class CallbackModule(CallbackBase):
    """Follow the plays of one process and keep C(run.json) up to date."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "hpcai.gpu_cluster.run_record"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: t.Any) -> None:
        preload()
        self.recorder = Recorder(self.get_option("run") or run_name(time.time()))
        self.written = 0.0
        self.play: t.Any = None
        self.node_known = False

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        self.play = play
        if not self.recorder.document["stages"] and not self.get_option("run"):
            self.recorder.run = workflow_run(play.get_variable_manager().extra_vars) or self.recorder.run
        self.recorder.enter(play.get_vars().get("run_stage"), time.time())
        self._write()

    def v2_playbook_on_no_hosts_matched(self) -> None:
        self.recorder.skip("no host of the inventory belongs to it")

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        self.recorder.skip("all of its hosts failed before")

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        self.recorder.task()
        # What the task hands on has to be in the file.
        keeps = task.resolved_action in KEEP or task.action in KEEP
        if keeps:
            self.recorder.settle(time.time())
        if keeps or time.time() - self.written > WRITE_EVERY:
            self._write()

    def v2_playbook_on_handler_task_start(self, task: t.Any) -> None:
        self.recorder.task()

    def v2_runner_on_start(self, host: t.Any, task: t.Any) -> None:
        # Variables are costly: one look per play, until it was a compute node's: others may have another type.
        if self.play is not None and not self.node_known:
            node = _compute_node(host)
            known = self.play.get_variable_manager().get_vars(play=self.play, host=node or host, include_hostvars=False)
            self.recorder.cluster(known.get("cluster_name"), known.get("cluster_sku"))
            self.node_known = node is not None
            self.play = None

    def v2_runner_on_ok(self, result: t.Any) -> None:
        gathered = result._task.resolved_action in GATHER or result._task.action in GATHER
        self.recorder.result(result._host.get_name(), result._result, gathered)

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        if ignore_errors or is_rescued(result._task):
            self.recorder.result(result._host.get_name(), result._result)
        else:
            self.recorder.failure(result._host.get_name(), result._result, result._task.get_name())

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        self.recorder.failure(result._host.get_name(), result._result, result._task.get_name())

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        lost = {*stats.failures, *stats.dark}
        self.recorder.forgive([host for host in stats.processed if host not in lost])
        self.recorder.leave(time.time())
        record = self._write()
        if record:
            self._display.banner("SUMMARY")
            for line in summary(record, self.recorder.run):
                self._display.display(line)

    def _write(self) -> dict[str, t.Any]:
        # A report that is drawn again is no run of its own.
        if context.CLIARGS.get("check") or not self.recorder.stages() - {"report"}:
            return {}
        record: dict[str, t.Any] = {}
        now = time.time()
        self.recorder.tick(now)
        try:
            path = Path(self.get_option("report_dir")) / "run.json"
            record = store(path, self.recorder.document, self.get_option("keep"))
        except (OSError, RecordError) as exc:
            self._display.warning(f"The run record was not written: {exc}")
        self.written = now
        return record


def _compute_node(host: t.Any) -> t.Any:
    """Return the first compute node of the inventory that a host is in; None where there is none."""
    hosts = [other for group in host.get_groups() if group.name == "all" for other in group.get_hosts()]
    return next((other for other in hosts if any(group.name == "slurm_compute" for group in other.get_groups())), None)
