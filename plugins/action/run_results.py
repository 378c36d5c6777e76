# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends the run record to a host that keeps it, or merges what the host has into the one here."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._run_file import RecordError, load, merge, store
from ansible_collections.hpcai.gpu_cluster.plugins.modules.run_results import RECORD, SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_summary import artifacts

MODULE = "hpcai.gpu_cluster.run_results"
Result = t.Dict[str, t.Any]


class ActionModule(ActionBase):
    """Moves files between here and the host; the module merges and looks at paths there."""

    TRANSFERS_FILES = False  # else a directory is made on the host in check mode too
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> Result:
        result: Result = super().run(tmp, task_vars)
        dummy, wanted = self.validate_argument_spec(SPEC)
        strange = [name for name in wanted["files"] if name != Path(name).name or name in (RECORD, "..")]
        if strange:
            raise AnsibleActionFail(f"files names what lies beside {RECORD} in report_dir, not {', '.join(strange)}")
        host = self._task.delegate_to or (task_vars or {}).get("inventory_hostname", "")
        result.update(changed=False, place=f"{host}:{wanted['dir']}", stages=[], files=[])
        if self._task.check_mode:
            return result
        folder = Path(wanted["report_dir"])
        try:
            found = (self._kept if wanted["state"] == "kept" else self._fetched)(folder, wanted, task_vars, result)
        except (RecordError, OSError) as exc:
            raise AnsibleActionFail(f"Cannot merge the run record in {folder}: {exc}") from exc
        return {**result, **found}

    def _kept(self, folder: Path, wanted: Result, task_vars: t.Any, result: Result) -> Result:
        record = load(folder / RECORD)
        if not record:
            return {"skipped": True, "skip_reason": f"there is no {folder / RECORD}"}
        names = [RECORD, *(name for name in wanted["files"] if (folder / name).is_file())]
        self._make_tmp_path()
        there = {name: self._connection._shell.join_path(self._connection._shell.tmpdir, name) for name in names}
        for name, path in there.items():
            self._transfer_file(str(folder / name), path)
        self._fixup_perms2([self._connection._shell.tmpdir, *there.values()], execute=False)
        done = self._ask(wanted, task_vars, sent=there)
        stats = {"data": artifacts(record, result["place"]), "per_host": False, "aggregate": False}
        return done if done.get("failed") else {**done, "ansible_stats": stats}

    def _fetched(self, folder: Path, wanted: Result, task_vars: t.Any, dummy: Result) -> Result:
        done = self._ask(wanted, task_vars, sent={})
        there = done.pop("record", None)
        if done.get("failed") or not there:
            return done
        # What is here is newer: it is this process's own.
        store(folder / RECORD, merge(there, load(folder / RECORD), wanted["runs"]), wanted["runs"])
        return {**done, "files": [RECORD]}

    def _ask(self, wanted: Result, task_vars: t.Any, sent: t.Mapping[str, str]) -> Result:
        options = {**wanted, "report_dir": str(wanted["report_dir"]), "sent": dict(sent)}
        done: Result = self._execute_module(module_name=MODULE, module_args=options, task_vars=task_vars)
        done.pop("invocation", None)
        return done
