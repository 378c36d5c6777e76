#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep one shared directory mounted."""

from __future__ import annotations

DOCUMENTATION = r"""
module: shared_mount
short_description: Keep a shared directory mounted, now, at boot and after its server was away
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Keeps a line in C(/etc/fstab) and lets systemd mount it. A mount that fails, at boot too, is tried again every 10
    seconds.
  - Never waits without an end for a server that is away, which C(ansible.posix.mount) does on a hard mount. A mount
    that does not answer is left alone and is an error that says so.
  - What is in use is never unmounted, unless its file handles are stale, so that nobody can use it anyway.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full, details: The line in fstab; a password that stands in the old one is not shown.}
  idempotent: {support: full}
options:
  path: {description: The mount point; made if it is not there., type: path, required: true}
  source:
    description: What is mounted. Without it the mount is somebody else's, and the module only makes sure that it is
      there and answers.
    type: str
    default: ""
  fstype: {description: The type in fstab; V(none) for a bind mount., type: str, default: nfs}
  options: {description: Mount options., type: list, elements: str, default: [defaults]}
  state:
    description: V(absent) unmounts it, takes it out of fstab, and removes its directory if that is empty.
    type: str
    choices: [mounted, absent]
    default: mounted
  patience: {description: Seconds to wait for an answer of a mounted file system., type: int, default: 15}
  timeout: {description: Seconds to wait for a mount., type: int, default: 120}
"""
EXAMPLES = r"""
- name: Mount the shared directory, now, at boot and whenever its server is back
  hpcai.gpu_cluster.shared_mount:
    path: /shared
    source: storage:/export/shared
    options: [hard, nofail, _netdev]

- name: See that what CycleCloud mounts is there and answers
  hpcai.gpu_cluster.shared_mount:
    path: /sched
"""
RETURN = r"""
actions: {description: What was done or would be., type: list, elements: str, returned: success, sample: [mount]}
mounted:
  description: What is mounted now.
  type: dict
  returned: success
  sample: {source: "storage:/export/shared", fstype: nfs4, options: "rw,noatime"}
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage.mount import (
    MountError,
    Wanted,
    fstab_line,
    hidden,
    plan,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage.mount_host import FSTAB, Host


def bring(module: AnsibleModule) -> dict[str, t.Any]:
    """Look, plan, and do it unless it is only asked for."""
    given = module.params
    path = os.path.normpath(given["path"])
    wanted = Wanted(path, given["source"], given["fstype"], ",".join(given["options"]), given["state"] == "mounted")
    host = Host(wanted, given["patience"], given["timeout"])
    seen = host.look()
    todo = plan(wanted, seen)
    changed = bool(todo.actions) or (todo.fstab, todo.drop_in) != (seen.fstab, seen.drop_in)
    if not module.check_mode and (changed or (wanted.present and wanted.source)):
        host.carry_out(seen, todo)
        if changed and not wanted.present:
            host.forget()
    for warning in host.warnings:
        module.warn(warning)
    lines = {
        side: f"{hidden(fstab_line(text, path))}\n".lstrip("\n")
        for side, text in (("before", seen.fstab), ("after", todo.fstab))
    }
    diff = {"before_header": str(FSTAB), "after_header": str(FSTAB), **lines}
    now = seen.mounted if module.check_mode else host.look().mounted
    return {"changed": changed, "actions": todo.actions, "mounted": now._asdict() if now else {}, "diff": diff}


def main() -> None:
    spec: dict[str, t.Any] = {"path": {"type": "path", "required": True}, "source": {"type": "str", "default": ""}}
    spec["fstype"] = {"type": "str", "default": "nfs"}
    spec["options"] = {"type": "list", "elements": "str", "default": ["defaults"]}
    spec["state"] = {"type": "str", "choices": ["mounted", "absent"], "default": "mounted"}
    spec.update({"patience": {"type": "int", "default": 15}, "timeout": {"type": "int", "default": 120}})
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        result = bring(module)
    except (MountError, OSError) as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
