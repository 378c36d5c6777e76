# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module pyxis_info without Ansible. Private."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import deb
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_fit as fit
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_host as host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.elf import ElfError

Json = t.Dict[str, t.Any]

SPEC: dict[str, dict[str, t.Any]] = {
    "drop_in": {"type": "path", "default": host.DROP_IN},
    "plugin": {"type": "path"},
    "package": {"type": "path"},
    "must_fit": {"type": "bool", "default": False},
    "ask": {"type": "bool", "default": True},
    "slurm_home": {"type": "str", "default": ""},
}


def look(params: t.Mapping[str, t.Any]) -> Json:
    """Return what there is and whether it goes together."""
    home = params["slurm_home"].rstrip("/")
    named, options = host.used(host.read(params["drop_in"]))
    path = params["package"] or params["plugin"] or named
    plugin, broken = _plugin(path, bool(params["package"]))
    slurmd, client = host.installed(home) if path else (None, None)
    running, controller = host.running(home) if path and params["ask"] else (None, None)
    seen = fit.Seen(plugin and plugin.slurm, slurmd, client, running, controller)
    problems = fit.misfits(seen, path) + broken
    if path and not plugin and not broken:
        who = f"{params['drop_in']} names it, so no job step starts here" if path == named else "nothing names it"
        problems.append(f"there is no {path}; {who}")
    return {
        "changed": False,
        "plugin": path if plugin else "",
        "options": options,
        "package": deb.installed(host.PACKAGE),
        "versions": {key: str(value or "") for key, value in seen._asdict().items()},
        "fits": not problems,
        "problems": problems,
        "remarks": fit.remarks(seen),
    }


def _plugin(path: str, is_package: bool) -> tuple[fit.Plugin | None, list[str]]:
    try:
        return (host.packed(path) if is_package else host.plugin(path)) if path else None, []
    except ElfError as exc:
        return None, [str(exc)]
