# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the module slurm_packages does, step by step. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.apt import Apt, PackageError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade.versions import VersionError

SPEC: dict[str, t.Any] = {
    "packages": {"type": "list", "elements": "str", "default": []},
    "version": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["planned", "downloaded", "present"], "default": "present"},
    "may_go": {"type": "list", "elements": "str", "default": []},
    "under_daemons": {"type": "bool", "default": False},
    "lists_max_age": {"type": "int", "default": 86400},
    "timeout": {"type": "float", "default": 3600},
}
Json = t.Dict[str, t.Any]


def bring(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Return what the module returns; a plan that cannot be is an answer too."""
    worker = Apt(params["packages"], params["version"], params["lists_max_age"], params["timeout"], not check_mode)
    result: Json = {"changed": False, "problem": "", "version": "", "interrupted": False}
    result.update(installed={}, install=[], moved=[], removed=[])
    try:
        _bring(worker, params, check_mode, result)
    except (PackageError, VersionError, OSError) as exc:
        if params["state"] != "planned":
            raise PackageError(str(exc)) from exc
        result["problem"] = str(exc)
    return result


def _bring(worker: Apt, params: t.Mapping[str, t.Any], check_mode: bool, result: Json) -> None:
    state, daemons = params["state"], worker.daemons()
    result["daemons"] = {name: one._asdict() for name, one in daemons.items()}
    broken = result["interrupted"] = worker.interrupted()
    plan = worker.look()
    result.update(version=plan.version, installed=plan.installed, install=plan.install)
    if not plan.changes and not broken:
        return
    if broken or plan.moves:  # what only comes along, in the version that is here, changes nothing under a daemon
        _refuse(daemons, params, plan.version)
    if broken and state == "present" and not check_mode:
        worker.repair()
        plan, broken = worker.look(), False
    if not broken:  # apt answers nothing else until that is mended
        result["moved"], result["removed"] = worker.effect(plan, params["may_go"])
        if state != "planned" and not check_mode:
            (worker.download if state == "downloaded" else worker.install)(plan)
    result["changed"] = state == "present"
    lines = [{key: f"{one['name']} {one[key]}\n" for key in ("before", "after")} for one in result["moved"]]
    result["diff"] = [{key: "".join(line[key] for line in lines) for key in ("before", "after")}] if lines else []


def _refuse(daemons: t.Mapping[str, t.Any], params: t.Mapping[str, t.Any], version: str) -> None:
    """Fail where packages would change under a daemon."""
    running = [f"{name} {one.runs}" for name, one in daemons.items() if one.active]
    if running and not params["under_daemons"] and params["state"] == "present":
        raise PackageError(
            f"{' and '.join(running)} run here, and slurm_version asks for {version}: a running Slurm is upgraded by"
            " playbook upgrade_slurm.yml, which keeps its jobs and its accounting. Nothing was changed"
        )
