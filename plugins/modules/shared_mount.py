#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep one shared directory mounted."""

from __future__ import annotations

DOCUMENTATION = r"""
module: shared_mount
short_description: Keep a shared directory mounted, also at boot and after its server was away
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Keeps a line in V(/etc/fstab) and lets systemd mount it. A mount that fails, also at boot, is tried again every 10
    seconds.
  - The module never waits without limit for a server that is away, as M(ansible.posix.mount) does on a hard mount. If a
    mounted file system does not answer, nothing is changed, and the module fails with a message about it.
  - A mount that is in use is never unmounted, unless its file handles are stale, so that nobody can use it anyway.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - The diff shows the line in V(/etc/fstab). A password in the old line is not shown.
  idempotent:
    support: full
options:
  path:
    description:
      - Absolute path of the mount point. It is created with mode 0755 if it is absent.
    type: path
    required: true
  source:
    description:
      - What is mounted, as in V(/etc/fstab), such as V(storage:/export/shared), V(//server/share) or a directory.
      - With an empty string the mount belongs to somebody else. V(/etc/fstab) is left alone, and the module fails
        unless something is mounted at O(path) and answers.
    type: str
    default: ""
  fstype:
    description:
      - Type in V(/etc/fstab), such as V(nfs) or V(cifs), or V(none) for a bind mount.
    type: str
    default: nfs
  options:
    description:
      - Mount options. If they change while it is mounted, it is remounted. Options that cannot be changed so take
        effect at the next boot, which is a warning.
    type: list
    elements: str
    default: [defaults]
  state:
    description:
      - V(mounted) has O(source) mounted. Another file system at O(path) is unmounted first, if it is not in use.
      - V(absent) unmounts it, removes its line from V(/etc/fstab), and removes the directory if it is empty.
    type: str
    choices: [mounted, absent]
    default: mounted
  patience:
    description:
      - Seconds to wait for an answer of a mounted file system.
    type: int
    default: 15
  timeout:
    description:
      - Seconds to wait for a mount. After them the module fails, and systemd goes on trying.
      - A CIFS server that takes connections and is too busy to answer (C(Host is down)) is asked again until then. Any
        other error ends the wait.
    type: int
    default: 120
notes:
  - The module needs root privileges.
  - V(/etc/fstab) may have one line for O(path). With several the module fails without a change.
seealso:
  - module: ansible.posix.mount
  - module: hpcai.gpu_cluster.storage_bandwidth
"""
EXAMPLES = r"""
- name: Mount the shared directory from an NFS server
  hpcai.gpu_cluster.shared_mount:
    path: /shared
    source: storage:/export/shared
    options: [hard, nofail, _netdev]
  become: true

- name: Check that the file system that CycleCloud mounts is there and answers
  hpcai.gpu_cluster.shared_mount:
    path: /sched
    patience: 30

- name: Show a directory of the local disk under another path
  hpcai.gpu_cluster.shared_mount:
    path: /export/shared
    source: /data/shared
    fstype: none
    options: [bind]
  become: true

- name: Unmount a share that is not needed any more
  hpcai.gpu_cluster.shared_mount:
    path: /mnt/old
    state: absent
  become: true
"""
RETURN = r"""
actions:
  description: What was done to the mount, or in check mode would be, V(mount), V(remount), V(unmount) and V(detach).
  type: list
  elements: str
  returned: success
  sample: [mount]
mounted:
  description: What is mounted now, in check mode without the change. Empty if nothing is.
  type: dict
  returned: success
  contains:
    source:
      description: What is mounted.
      type: str
      sample: storage:/export/shared
    fstype:
      description: Type of the file system.
      type: str
      sample: nfs4
    options:
      description: Options of the mount.
      type: str
      sample: rw,noatime
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage.mount import (
    FSTAB,
    MountHost,
    MountRequest,
    SharedMountError,
    fstab_line,
    hidden,
    plan,
)

SPEC: dict[str, t.Any] = {
    "path": {"type": "path", "required": True},
    "source": {"type": "str", "default": ""},
    "fstype": {"type": "str", "default": "nfs"},
    "options": {"type": "list", "elements": "str", "default": ["defaults"]},
    "state": {"type": "str", "choices": ["mounted", "absent"], "default": "mounted"},
    "patience": {"type": "int", "default": 15},
    "timeout": {"type": "int", "default": 120},
}


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Look, plan, and do it unless it is only asked for."""
    params = module.params
    path = os.path.normpath(params["path"])
    request = MountRequest(
        path, params["source"], params["fstype"], ",".join(params["options"]), params["state"] == "mounted"
    )
    host = MountHost(request, params["patience"], params["timeout"])
    seen = host.look()
    todo = plan(request, seen)
    changed = bool(todo.actions) or (todo.fstab, todo.drop_in) != (seen.fstab, seen.drop_in)
    if not module.check_mode and (changed or (request.present and request.source)):
        host.carry_out(seen, todo)
        if changed and not request.present:
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
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module)
    except (SharedMountError, OSError) as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
