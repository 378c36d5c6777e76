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
        dummy, request = self.validate_argument_spec(SPEC)
        strange = [name for name in request["files"] if name != Path(name).name or name in (RECORD, "..")]
        if strange:
            raise AnsibleActionFail(f"files names what lies beside {RECORD} in report_dir, not {', '.join(strange)}")
        if not request["dir"] and not request["blob"]:
            raise AnsibleActionFail("one of dir and blob has to say where the run record is kept")
        host = self._task.delegate_to or (task_vars or {}).get("inventory_hostname", "")
        place = f"{host}:{request['dir']}" if request["dir"] else request["blob"]
        result.update(changed=False, place=place, stages=[], files=[])
        if self._task.check_mode:
            return result
        folder, kept = Path(request["report_dir"]), request["state"] == "kept"
        trouble = ""
        try:
            record = load(folder / RECORD) if kept else None
            if kept and not record:
                return {**result, "skipped": True, "skip_reason": f"there is no {folder / RECORD}"}
            names = [name for name in request["files"] if kept and (folder / name).is_file()]
            # The container first: it may be all that can be reached. If it fails, the host has its turn all the same.
            if request["blob"]:
                try:
                    result.update(_in_container(folder, request, record, names))
                except (_blob.BlobError, RecordError) as exc:
                    trouble = str(exc)
            if request["dir"]:
                done = self._on_host(folder, request, record, names, task_vars)
                result.update(done, **({} if done.get("failed") or not record else _stats(record, place)))
        except (RecordError, OSError) as exc:
            raise AnsibleActionFail(f"Cannot merge the run record in {folder}: {exc}") from exc
        if trouble:
            result.update(failed=True, msg=". ".join(filter(None, [trouble, result.get("msg")])))
        return result

    def _on_host(
        self, folder: Path, request: Result, record: Result | None, names: t.Sequence[str], task_vars: t.Any
    ) -> Result:
        """Send the record to the host, whose module merges it, or take the host's."""
        sent = self._send(folder, [RECORD, *names]) if record else {}
        options = {**request, "report_dir": str(request["report_dir"]), "sent": sent}
        done: Result = self._execute_module(module_name=MODULE, module_args=options, task_vars=task_vars)
        done.pop("invocation", None)
        there = done.pop("record", None)
        if done.get("failed") or record:
            return done
        return {**done, **_taken(folder, request, there)} if there else done

    def _send(self, folder: Path, names: t.Sequence[str]) -> dict[str, str]:
        """Copy files into the task's directory on the host; return where each is there."""
        self._make_tmp_path()
        shell = self._connection._shell
        there = {name: shell.join_path(shell.tmpdir, name) for name in names}
        for name, path in there.items():
            self._transfer_file(str(folder / name), path)
        self._fixup_perms2([shell.tmpdir, *there.values()], execute=False)
        return there


def _in_container(folder: Path, request: Result, record: Result | None, names: t.Sequence[str]) -> Result:
    """Merge the record into that of the container, or take the container's."""
    blobs = _blob.Blobs(request["blob"])
    if not record:
        there = _blob.fetch(blobs, RECORD)
        return _taken(folder, request, there) if there else {"files": []}
    for name in names:
        blobs.replace(name, (folder / name).read_bytes())
    kept = _blob.keep(blobs, RECORD, record, request["runs"])
    stages = [f"{stage.get('run')} {stage.get('stage')}" for stage in kept["stages"]]
    return {"stages": stages, "files": sorted([RECORD, *names]), **_stats(record, request["blob"])}


def _taken(folder: Path, request: Result, there: Result) -> Result:
    """Merge a record that was fetched into the one here, which is newer: it is this process's own."""
    store(folder / RECORD, merge(there, load(folder / RECORD, there.get("cluster")), request["runs"]), request["runs"])
    return {"files": [RECORD]}


def _stats(record: Result, place: str) -> Result:
    return {"ansible_stats": {"data": artifacts(record, place), "per_host": False, "aggregate": False}}
