# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws the report on the controller: records of thousands of nodes are read once and not through templates."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._run_file import RecordError, load
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._exports.write import FORMATS, find, paths, write
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.fleet.read import ReadError

SPEC: dict[str, dict[str, t.Any]] = {
    "dir": {"type": "path", "required": True},
    "cluster": {"type": "str"},
    "certification": {"type": "path"},
    "name": {"type": "str", "default": "report"},
    "formats": {"type": "list", "elements": "str", "choices": list(FORMATS), "default": ["html"]},
    "values": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):
    """Reads, draws and writes; nothing is sent to the host."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        result: dict[str, t.Any] = super().run(tmp, task_vars)
        dummy, request = self.validate_argument_spec(SPEC)
        folder = Path(request["dir"])
        certification = Path(request["certification"]) if request["certification"] else None
        try:
            sources = find(load(folder / "run.json", request["cluster"]), certification, request["cluster"])
            if not sources.record and sources.certificate is None:
                raise ReadError(f"there is neither {folder / 'run.json'} nor a certificate in {certification}")
            files = paths(folder, request["name"], request["formats"])
            if not self._task.check_mode:
                write(sources, folder, request["name"], request["formats"], request["values"])
        except (ReadError, RecordError, OSError) as exc:
            raise AnsibleActionFail(f"Cannot draw the report: {exc}") from exc
        if sources.broken:
            result["warnings"] = [f"Left out of the report: {words}" for words in sources.broken]
        certificate = sources.certificate or {}
        result.update(changed=False, files={name: str(path) for name, path in files.items()})
        result["certificate"] = {"run": certificate.get("run"), "before": len(sources.earlier)} if certificate else None
        return result
