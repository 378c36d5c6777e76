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
  - A key that another user than root and O(owner) can have written is refused, since whoever knows the key is any user
    of the cluster.
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
  create:
    description:
      - Whether a key is created where there is none. With V(false) the file is only read, nothing about it is changed,
        and it is refused if it is missing, shorter than 32 bytes, readable for its group or others, or if its path can
        be exchanged by another user than root and O(owner).
    type: bool
    default: true
  returned:
    description:
      - Whether RV(key) is returned. A task without it needs no C(no_log), which would hide why the key is refused.
    type: bool
    default: true
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

- name: Refuse a copy of the key that others can have read or written
  hpcai.gpu_cluster.munge_key:
    path: /shared/hpcai/secret/munge.key
    owner: root
    create: false
    returned: false
  become: true

- name: Read the copy of the key that root keeps on the shared directory
  hpcai.gpu_cluster.munge_key:
    path: /shared/hpcai/secret/munge.key
    owner: root
    create: false
  become: true
  no_log: true
  register: cluster_key
"""
RETURN = r"""
key:
  description: The key in base64. Empty in check mode where one would be created.
  type: str
  returned: with O(returned)
  sample: VGhpcyBpcyBub3QgYSBtdW5nZSBrZXksIG9ubHkgYSBzYW1wbGU=
"""

import base64
import os
import pwd
import stat
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._munge_rotation import LEAST
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import replace_owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import (
    TrustError,
    read_with_status,
    trusted_users,
)

SPEC = {
    "path": {"type": "path", "default": "/etc/munge/munge.key"},
    "owner": {"type": "str", "default": "munge"},
    "create": {"type": "bool", "default": True},
    "returned": {"type": "bool", "default": True},
}


SIZE_MADE = 128  # what munged makes


def read_key(path: str, owner: str, create: bool) -> bytes:
    """Return the key, or nothing where one may be created; raise TrustError for a file that cannot be the key."""
    try:
        users = trusted_users(pwd.getpwnam(owner).pw_uid)
    except KeyError:
        users = trusted_users()  # the package that makes the user is not installed yet
    try:
        key, status = read_with_status(path, users)
    except FileNotFoundError as exc:
        if create:
            return b""
        raise TrustError(
            f"{path} is missing. Put the cluster's key there (on the first controller it is /etc/munge/munge.key), "
            "readable for root alone"
        ) from exc
    if not create and status.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise TrustError(
            f"{path} has mode {stat.S_IMODE(status.st_mode):04o}: whoever reads it is any user of the cluster. Make it "
            "readable for root alone (chmod 0400), and roll the key if people had the time to read it"
        )
    if not create and len(key) < LEAST:
        raise TrustError(f"{path} has {len(key)} bytes, and munged takes no key of less than {LEAST}")
    return key


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Return the key, made where there is none and that is wanted."""
    path, owner, create = Path(module.params["path"]), module.params["owner"], module.params["create"]
    now = read_key(str(path), owner, create)
    missing = create and len(now) < LEAST  # what a killed run left behind
    key = (b"" if module.check_mode else os.urandom(SIZE_MADE)) if missing else now
    changed = missing
    if changed and not module.check_mode:
        replace_owned(path, key, owner, 0o400)
    if create and path.exists() and owner in {user.pw_name for user in pwd.getpwall()}:
        attributes = {"path": str(path), "owner": owner, "group": owner, "mode": "0400"}
        common = {"secontext": [None, None, None], "attributes": None}
        changed = module.set_fs_attributes_if_different({**attributes, **common}, changed)
    secret = {"key": base64.b64encode(key).decode()} if module.params["returned"] else {}
    return {"changed": changed, **secret}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module)
    except (TrustError, OSError) as exc:
        module.fail_json(msg=f"Cannot take or make the munge key of {module.params['path']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
