# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adds check records to the run record on the controller, where no callback is configured that would do it."""

from __future__ import annotations

import time
import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._run_file import RecordError, store
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _measure
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_record import Recorder, run_name
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import count

SPEC: dict[str, dict[str, t.Any]] = {
    "dir": {"type": "path", "required": True},
    "stage": {"type": "str", "required": True},
    "checks": {"type": "list", "elements": "dict", "required": True},
    "hosts": {"type": "list", "elements": "str", "default": []},
    "failures": {"type": "dict", "default": {}},
    "cluster": {"type": "str"},
    "sku": {"type": "str"},
    "run": {"type": "str"},
    "keep": {"type": "int", "default": 10},
    "bad": {"type": "list", "elements": "str", "default": ["fail", "error"]},
}


class ActionModule(ActionBase):
    """Merges and writes; nothing is sent to the host."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        dummy, request = self.validate_argument_spec(SPEC)
        broken = [check for check in request["checks"] if not check.get("check") or not check.get("verdict")]
        if broken:
            raise AnsibleActionFail(f"Not a check record, it has no check or no verdict: {broken[0]!r}")
        now = time.time()
        document, run = _document(request, now)
        path = Path(request["dir"]) / "run.json"
        if not self._task.check_mode:
            try:
                store(path, document, request["keep"])
            except (OSError, RecordError) as exc:
                raise AnsibleActionFail(f"The run record was not written: {exc}") from exc
        result.update(changed=False, path=str(path), run=run, verdicts=count(document["checks"]))
        result["lines"] = _measure.lines(document["checks"])
        result["bad"] = _measure.bad(document["checks"], request["bad"])
        return result


def _document(request: t.Mapping[str, t.Any], now: float) -> tuple[dict[str, t.Any], str]:
    """Return one stage with its checks, as the callback would have written it."""
    begin = min([check["time"] for check in request["checks"] if check.get("time")], default=now)
    recorder = Recorder(request["run"] or run_name(begin))
    recorder.cluster(request["cluster"], request["sku"])
    recorder.enter(request["stage"], begin)
    known = {check.get("node") for check in request["checks"]}
    lost = [
        record(request["stage"], host, time=now, verdict="error", reason=str(text))
        for host, text in request["failures"].items()
        if host not in known
    ]
    # Each record names its node itself, or is about several.
    recorder.result("", {"checks": [*request["checks"], *lost]})
    stage = recorder.document["stages"][-1]
    stage["hosts"] = list(request["hosts"])
    stage["failures"] = {str(host): str(text) for host, text in request["failures"].items()}
    recorder.leave(now)
    return recorder.document, recorder.run
