#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a munge key."""

from __future__ import annotations

DOCUMENTATION = r"""
module: munge_key
short_description: Create the munge key of a cluster once, and return it
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Creates a munge key on a host if it has none, and returns the key. An existing key is never replaced. A file of less
    than 32 bytes, which munged refuses, is no key.
  - Owner and mode of the file are corrected. Its content is never part of a diff.
  - In check mode on a host without a key none is made, and the returned key is empty.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  path:
    description:
      - File of the key, with mode 0400. Its directory must exist.
    type: path
    default: /etc/munge/munge.key
  owner:
    description:
      - User and group that own the file. Before they exist the file belongs to the user of the task.
    type: str
    default: munge
notes:
  - RV(key) is a secret. Use C(no_log) for the task that registers it.
  - The module needs root privileges.
seealso:
  - module: hpcai.gpu_cluster.service_current
"""
EXAMPLES = r"""
- name: Create the key on the first controller
  hpcai.gpu_cluster.munge_key:
  delegate_to: controller
  run_once: true
  become: true
  no_log: true
  register: cluster_key

- name: Run munged on every host with that key
  hpcai.gpu_cluster.service_current:
    name: munge
    files:
      - path: /etc/munge/munge.key
        secret: "{{ cluster_key.key }}"
        owner: munge
        mode: "0400"
  become: true

- name: Create the key of a second cluster beside the first
  hpcai.gpu_cluster.munge_key:
    path: /srv/clusters/b/munge.key
    owner: root
  become: true
  no_log: true
  register: second_key
"""
RETURN = r"""
key:
  description: The key in base64. Empty in check mode where one would be created.
  type: str
  returned: success
  sample: VGhpcyBpcyBub3QgYSBtdW5nZSBrZXksIG9ubHkgYSBzYW1wbGU=
"""

import base64
import os
import pwd
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import replace_owned

SIZE_MADE = 128  # what munged makes
SIZE_LEAST = 32  # what munged takes; anything shorter is a file that a killed run left behind


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/etc/munge/munge.key"},
            "owner": {"type": "str", "default": "munge"},
        },
        supports_check_mode=True,
    )
    path, owner = Path(module.params["path"]), module.params["owner"]
    now = path.read_bytes() if path.exists() else b""
    key = now if len(now) >= SIZE_LEAST else b"" if module.check_mode else os.urandom(SIZE_MADE)
    changed = len(now) < SIZE_LEAST
    if changed and not module.check_mode:
        try:
            replace_owned(path, key, owner, 0o400)
        except OSError as exc:
            module.fail_json(msg=f"Cannot write {path}: {exc}")
    if path.exists() and owner in {user.pw_name for user in pwd.getpwall()}:
        attributes = {"path": str(path), "owner": owner, "group": owner, "mode": "0400"}
        common = {"secontext": [None, None, None], "attributes": None}
        changed = module.set_fs_attributes_if_different({**attributes, **common}, changed)
    module.exit_json(changed=changed, key=base64.b64encode(key).decode())


if __name__ == "__main__":
    main()
