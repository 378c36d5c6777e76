#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep a service running with its current files."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_current
short_description: Keep a systemd service running with its current files
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Enables and starts a service; restarts or reloads it when its unit or a file named here is newer than its process.
  - Unlike a handler this also holds when an earlier run was killed between writing a file and restarting the service.
  - Fails with the last lines of the journal when the service does not stay up.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  name: {description: The unit without its suffix., type: str, required: true}
  restart_on: {description: Files that it reads when it starts., type: list, elements: path, default: []}
  reload_on: {description: Files that it reads again by O(reload)., type: list, elements: path, default: []}
  reload: {description: Command instead of C(systemctl reload)., type: list, elements: str}
  ready: {description: Command that succeeds once the service answers., type: list, elements: str}
  timeout: {description: Seconds to wait for O(ready)., type: int, default: 60}
"""
EXAMPLES = r"""
- name: Run slurmctld with the current configuration
  hpcai.gpu_cluster.service_current:
    name: slurmctld
    restart_on: [/etc/slurm/restart.digest]
    reload_on: [/etc/slurm/slurm.conf]
    reload: [scontrol, reconfigure]
    ready: [scontrol, ping]
"""
RETURN = r"""
action: {description: Either V(start) or V(restart) or V(reload) or empty., type: str, returned: success, sample: start}
stale: {description: Files newer than the service., type: list, elements: str, returned: success, sample: [/etc/x]}
"""

import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._service_state import SHOW, parse_show, plan, unit_files

STAMPS = Path("/run/hpcai-service")


def show(module: AnsibleModule) -> dict[str, str]:
    return parse_show(module.run_command([*SHOW, module.params["name"]], check_rc=True)[1])


def times(paths: t.Iterable[str]) -> dict[str, float]:
    return {path: Path(path).stat().st_mtime for path in paths if Path(path).exists()}


def act(module: AnsibleModule, action: str, stamp: Path) -> None:
    name = module.params["name"]
    if action == "reload":
        module.run_command(module.params["reload"] or ["systemctl", "reload", name], check_rc=True)
        stamp.parent.mkdir(exist_ok=True)
        stamp.touch()
    elif action:
        module.run_command(["systemctl", "reset-failed", name])
        result = module.run_command(["systemctl", action, name])
        if result[0]:
            give_up(module, f"systemctl {action} said: {result[2].strip()}")


def wait(module: AnsibleModule) -> None:
    ready, end = module.params["ready"], time.monotonic() + module.params["timeout"]
    while show(module)["ActiveState"] in ("active", "activating", "reloading"):
        rc, out, err = module.run_command(ready) if ready else (0, "", "")
        if rc == 0:
            return
        if time.monotonic() > end:
            give_up(module, f"{' '.join(ready)} still fails after {module.params['timeout']} s: {(err or out).strip()}")
        time.sleep(0.3)
    give_up(module, "it did not stay up")


def give_up(module: AnsibleModule, cause: str) -> None:
    journal = module.run_command(["journalctl", "-u", module.params["name"], "-n", "12", "-o", "cat", "--no-pager"])[1]
    module.fail_json(msg=f"Service {module.params['name']} does not run: {cause}. Its journal ends with:\n{journal}")


def main() -> None:
    paths = {"type": "list", "elements": "path", "default": []}
    words = {"type": "list", "elements": "str"}
    spec: dict[str, t.Any] = {"name": {"type": "str", "required": True}, "timeout": {"type": "int", "default": 60}}
    spec.update({"restart_on": paths, "reload_on": paths, "reload": words, "ready": words})
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    name, unit = module.params["name"], show(module)
    if unit.get("LoadState") != "loaded" and not module.check_mode:
        module.fail_json(msg=f"There is no usable unit {name}: systemd says it is {unit.get('LoadState')}")
    stamp = STAMPS / f"{name}.reloaded"
    reloaded = times([str(stamp)]).get(str(stamp), 0.0)
    restart_on = times([*unit_files(unit), *module.params["restart_on"]])
    todo = plan(unit, restart_on, times(module.params["reload_on"]), reloaded)
    if not module.check_mode:
        if todo.daemon_reload:
            module.run_command(["systemctl", "daemon-reload"], check_rc=True)
        if todo.enable:
            module.run_command(["systemctl", "enable", name], check_rc=True)
        act(module, todo.action, stamp)
        wait(module)
    module.exit_json(changed=todo.changed, action=todo.action, stale=todo.stale)


if __name__ == "__main__":
    main()
