# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends the run record to where it is kept, a host or a blob container, or merges what is there into the one here."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._run_file import RecordError, load, merge, store
from ansible_collections.hpcai.gpu_cluster.plugins.modules.run_results import RECORD, SPEC
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _blob
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
        if not wanted["dir"] and not wanted["blob"]:
            raise AnsibleActionFail("one of dir and blob has to say where the run record is kept")
        host = self._task.delegate_to or (task_vars or {}).get("inventory_hostname", "")
        place = f"{host}:{wanted['dir']}" if wanted["dir"] else wanted["blob"]
        result.update(changed=False, place=place, stages=[], files=[])
        if self._task.check_mode:
            return result
        folder = Path(wanted["report_dir"])
        # The container first: it may be all that can be reached. If it fails, the host has its turn all the same.
        trouble = ""
        try:
            if wanted["blob"]:
                try:
                    result.update(self._in_container(folder, wanted))
                except (_blob.BlobError, RecordError) as exc:
                    trouble = str(exc)
            if wanted["dir"]:
                move = self._kept if wanted["state"] == "kept" else self._fetched
                result.update(move(folder, wanted, task_vars, result))
        except (RecordError, OSError) as exc:
            raise AnsibleActionFail(f"Cannot merge the run record in {folder}: {exc}") from exc
        if trouble:
            result.update(failed=True, msg=". ".join(filter(None, [trouble, result.get("msg")])))
        return result

    @staticmethod
    def _in_container(folder: Path, wanted: Result) -> Result:
        """Keep the record in the container or fetch it from there."""
        blobs = _blob.Blobs(wanted["blob"])
        if wanted["state"] == "fetched":
            there = _blob.fetch(blobs, RECORD)
            if there:
                store(folder / RECORD, merge(there, load(folder / RECORD), wanted["runs"]), wanted["runs"])
            return {"files": [RECORD] if there else []}
        record = load(folder / RECORD)
        if not record:
            return {"skipped": True, "skip_reason": f"there is no {folder / RECORD}"}
        files = [name for name in wanted["files"] if (folder / name).is_file()]
        for name in files:
            blobs.replace(name, (folder / name).read_bytes())
        kept = _blob.keep(blobs, RECORD, record, wanted["runs"])
        stages = [f"{stage.get('run')} {stage.get('stage')}" for stage in kept["stages"]]
        stats = {"data": artifacts(record, wanted["blob"]), "per_host": False, "aggregate": False}
        return {"stages": stages, "files": sorted([RECORD, *files]), "ansible_stats": stats}

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
