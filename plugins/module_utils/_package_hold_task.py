# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module package_hold does with its options. Private."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _managed_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _package_hold as packages


class Module(_managed_file.Module, t.Protocol):
    """What is needed of AnsibleModule."""

    def get_bin_path(self, arg: str) -> str | None: ...

    def run_command(self, args: list[str], check_rc: bool = False) -> tuple[int, str, str]: ...


def perform(module: Module, params: t.Mapping[str, t.Any]) -> owned.Json:
    """Hold and release what has to be."""
    if not module.get_bin_path("dpkg-query"):
        text = "there is no dpkg here: packages and automatic upgrades are left as they are"
        return {"changed": False, "findings": owned.told([owned.Finding("warn", "packages", text)])}
    meant = not params["only_on"] or any(Path(path).exists() for path in params["only_on"])
    wanted = params["state"] == "present" and meant
    record = owned.load(params["record"])
    now = packages.installed(module.run_command(packages.SHOW, check_rc=True)[1])
    todo = packages.plan(now, params["packages"] if wanted else [], record.get("held", []))
    off = packages.PERIODIC if wanted and not params["automatic_upgrades"] else None
    changes, findings = owned.plan({packages.APT: off})
    if not module.check_mode:
        carry_out(module, params["record"], todo, changes, record)
    diffs = [*owned.differences(changes), *todo.difference()]
    changed = bool(changes or todo.hold or todo.release)
    return {
        "changed": changed,
        "held": todo.hold,
        "released": todo.release,
        "findings": owned.told(findings),
        "diff": diffs,
    }


def carry_out(module: Module, path: str, todo: packages.Plan, changes: list[owned.Change], record: owned.Json) -> None:
    """The record tells what is held, also when dpkg refuses because somebody else is at work."""
    record["held"] = sorted({*todo.held, *todo.release})
    owned.note_directories(changes, record)
    owned.save(path, record)
    owned.apply(module, changes, record, {})
    for word, names in (("hold", todo.hold), ("unhold", todo.release)):
        if names:
            module.run_command(["apt-mark", word, *names], check_rc=True)
    record["held"] = todo.held
    owned.save(path, record)
