# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Callback that says how far a node came with itself."""

from __future__ import annotations

DOCUMENTATION = r"""
name: node_result
type: notification
short_description: Record how far a node came that configures itself
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Keeps one JSON file with the task that runs (C(task)), the task that failed and its message (C(failed_task),
    C(message)), the number of tasks that changed something (C(changed)), and at the end the number of hosts (C(hosts)).
  - The message of a result with C(no_log) is not written.
  - The bundle of the role P(hpcai.gpu_cluster.node_bundle#role) switches it on and makes its own result of the file.
requirements:
  - enabled in the configuration, C(callbacks_enabled=hpcai.gpu_cluster.node_result)
options:
  path:
    description:
      - Path of the file, which is replaced in one step. Without it nothing is written.
    type: path
    env:
      - name: HPCAI_NODE_PROGRESS
"""

import json
import typing as t
from pathlib import Path

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    """Follow the tasks of one node."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "hpcai.gpu_cluster.node_result"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_start(self, playbook: t.Any) -> None:
        self.seen: dict[str, t.Any] = {"task": "", "failed_task": "", "message": "", "changed": 0, "hosts": 0}

    def v2_playbook_on_task_start(self, task: t.Any, is_conditional: bool) -> None:
        self.seen["task"] = task.get_name()
        self._write()

    def v2_playbook_on_handler_task_start(self, task: t.Any) -> None:
        self.v2_playbook_on_task_start(task, False)

    def v2_runner_on_ok(self, result: t.Any) -> None:
        self.seen["changed"] += bool(result._result.get("changed"))

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            self.seen["failed_task"] = result._task.get_name()
            self.seen["message"] = self._why(result._result)
            self._write()

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        self.v2_runner_on_failed(result)

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        self.seen["hosts"] = len(stats.processed)
        self._write()

    def _why(self, result: dict[str, t.Any]) -> str:
        if result.get("_ansible_no_log"):
            return "its result is hidden (no_log)"
        inner = [
            str(item.get("msg"))
            for item in result.get("results") or []
            if isinstance(item, dict) and item.get("failed")
        ]
        return "; ".join(inner) or str(result.get("msg") or result.get("stderr") or "no message")

    def _write(self) -> None:
        path = self.get_option("path")
        if not path:
            return
        try:
            aside = Path(f"{path}.new")
            aside.write_text(json.dumps(self.seen), encoding="utf-8")
            aside.replace(path)
        except OSError as exc:
            self._display.warning(f"{path} was not written: {exc}")
