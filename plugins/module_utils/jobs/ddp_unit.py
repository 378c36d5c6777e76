# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd unit of a node's part in a training without a scheduler. Private."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.jobs import ddp


def start(module: t.Any, name: str) -> bool:
    """Start a node's part; tell whether it was not running already."""
    params, systemctl = module.params, module.get_bin_path("systemctl", required=True)
    if module.run_command([systemctl, "is-active", "--quiet", name])[0] == 0:
        return False
    run = Path(params["path"]) / params["run"]
    if not module.check_mode:
        if not (run / "spec.json").exists():
            raise ddp.DdpError(f"{run / 'spec.json'} is not there on {params['node']}; is the directory shared?")
        program = module.get_bin_path("systemd-run", required=True)
        try:
            spec = json.loads((run / "spec.json").read_text(encoding="utf-8"))
            argv = ddp.start(program, name, params["user"], spec, str(run), params["node"])
        except (ValueError, KeyError, TypeError) as exc:
            raise ddp.DdpError(f"{run / 'spec.json'} cannot be read on {params['node']}: {exc!r}") from exc
        module.run_command(argv, check_rc=True)
    return True


def stop(module: t.Any, name: str) -> bool:
    """End whatever a node still does; tell whether it did anything."""
    systemctl = module.get_bin_path("systemctl", required=True)
    active = module.run_command([systemctl, "is-active", name])[1].strip() not in ("inactive", "failed", "unknown", "")
    if active and not module.check_mode:
        module.run_command([systemctl, "stop", f"{name}.service"], check_rc=True)
    return active
