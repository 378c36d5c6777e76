#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep a service running with its current files."""

from __future__ import annotations

DOCUMENTATION = r"""
module: service_current
short_description: Keep a systemd service and its files, and the service running with them
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Writes the files that belong to a service, then enables and starts it; restarts or reloads it when its unit or a
    file named here is newer than its process.
  - Unlike a handler this also holds when an earlier run was killed between writing a file and restarting the service.
  - Fails with the last lines of the journal when the service does not stay up.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  name: {description: The unit without its suffix., type: str, required: true}
  files:
    description: Files and directories of the service. It reads them when it starts, unless O(reload_on) names them.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: The file; directories above it are made., type: path, required: true}
      content: {description: What it holds. A file with none of this is a directory., type: str}
      base64: {description: "What it holds, in base64, for what is no text; a diff shows digests.", type: str}
      secret: {description: "What it holds, in base64; never shown.", type: str}
      owner: {description: Its user and group., type: str, default: root}
      mode: {description: By default 0644 for files and 0755 for directories., type: str}
      diff: {description: Whether a diff shows its lines; otherwise it shows digests., type: bool, default: true}
  restart_on: {description: Other files that it reads when it starts., type: list, elements: path, default: []}
  reload_on: {description: Files that it reads again by O(reload)., type: list, elements: path, default: []}
  written:
    description: Files that an earlier task of the run wrote. Check mode takes those in O(restart_on) and O(reload_on)
      as written now, for it finds the old ones.
    type: list
    elements: path
    default: []
  reload: {description: Command instead of C(systemctl reload)., type: list, elements: str}
  ready: {description: Command that succeeds once the service answers., type: list, elements: str}
  timeout: {description: Seconds to wait for O(ready)., type: int, default: 60}
  no_cycles:
    description: Fail where units of this machine wait for each other, for these files or others. At the next boot
      systemd would leave out one of them, maybe this one, and say so in the journal only.
    type: bool
    default: false
"""
EXAMPLES = r"""
- name: Run slurmctld with the current configuration
  hpcai.gpu_cluster.service_current:
    name: slurmctld
    files:
      - path: /etc/systemd/system/slurmctld.service.d/site.conf
        content: "{{ lookup('ansible.builtin.template', 'site.conf') }}"
    restart_on: [/etc/slurm/restart.digest]
    reload_on: [/etc/slurm/slurm.conf]
    reload: [scontrol, reconfigure]
    ready: [scontrol, ping]
"""
RETURN = r"""
action: {description: Either V(start) or V(restart) or V(reload) or empty., type: str, returned: success, sample: start}
stale: {description: Files newer than the service., type: list, elements: str, returned: success, sample: [/etc/x]}
written: {description: Files that changed., type: list, elements: str, returned: success, sample: [/etc/x]}
"""

import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._managed_file import SPEC, FileError, keep_all
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._service_client import Service, ServiceError, times
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._service_state import plan, unit_files


def bring(module: AnsibleModule) -> dict[str, t.Any]:
    """Write the files, then do to the service what they ask for."""
    changed, written, diff = keep_all(module, module.params["files"])
    service = Service(module)
    unit = service.show()
    own = [entry["path"] for entry in module.params["files"]]
    others = [*module.params["restart_on"], *module.params["reload_on"]]
    announced = [path for path in module.params["written"] if path in others and module.check_mode]
    seen = times([*unit_files(unit), *own, *others], {**dict.fromkeys(announced, time.time()), **written})
    reload_on = {path: seen.pop(path) for path in module.params["reload_on"] if path in seen}
    todo = plan(unit, seen, reload_on, service.reloaded())
    if not module.check_mode:
        service.run(unit, todo)
    if module.params["no_cycles"]:
        service.refuse_cycles()
    changed = changed or todo.changed
    return {"changed": changed, "action": todo.action, "stale": todo.stale, "written": sorted(written), "diff": diff}


def main() -> None:
    paths = {"type": "list", "elements": "path", "default": []}
    words = {"type": "list", "elements": "str"}
    spec: dict[str, t.Any] = {"name": {"type": "str", "required": True}, "timeout": {"type": "int", "default": 60}}
    spec["no_cycles"] = {"type": "bool", "default": False}
    spec["files"] = {"type": "list", "elements": "dict", "default": [], "options": SPEC}
    spec.update({"restart_on": paths, "reload_on": paths, "written": paths, "reload": words, "ready": words})
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        result = bring(module)
    except (FileError, ServiceError) as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
