#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: enroot_credentials
short_description: Keep users' passwords for container registries where enroot looks for them
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Keeps lines of C(~/.config/enroot/.credentials), a file in netrc format with mode 0600 that enroot reads when a user
    imports an image from a registry.
  - >-
    Files are read and written with the rights of their users, so that homes on a file server work where root has no
    access. Passwords go through standard input and are on no command line.
  - Lines that users have there for other registries or logins stay. A file with another mode than 0600 is written anew.
  - All files are read before the first one changes.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  entries:
    description:
      - Credentials, one for each user, registry and login. A second line of the same registry and login is removed.
    type: list
    elements: dict
    required: true
    suboptions:
      user:
        description:
          - User of this host who imports images. A user that the host does not know is an error.
        type: str
        required: true
      machine:
        description:
          - Name of the registry without its port, such as V(nvcr.io). enroot does not find an entry with a port.
        type: str
        required: true
      login:
        description:
          - Name of the user at the registry, without blanks. NGC takes V($oauthtoken).
        type: str
        required: true
      password:
        description:
          - Password or token at the registry, without blanks. With an empty one the line is removed.
        type: str
        required: true
notes:
  - Needs root and C(runuser).
seealso:
  - module: hpcai.gpu_cluster.container_image
  - module: hpcai.gpu_cluster.enroot_config
"""

EXAMPLES = r"""
- name: Let a user import images from NGC
  hpcai.gpu_cluster.enroot_credentials:
    entries:
      - user: trainer
        machine: nvcr.io
        login: $oauthtoken
        password: "{{ vault_ngc_key }}"
  become: true

- name: Give several users a token of the site's own registry
  hpcai.gpu_cluster.enroot_credentials:
    entries: "{{ [{'user': 'anna'}, {'user': 'trainer'}] | map('combine', registry) | list }}"
  vars:
    registry:
      machine: registry.example.org
      login: cluster
      password: "{{ vault_registry_token }}"
  become: true

- name: Remove a password that was revoked
  hpcai.gpu_cluster.enroot_credentials:
    entries:
      - user: trainer
        machine: registry.example.org
        login: cluster
        password: ""
  become: true
"""

RETURN = r"""
users:
  description:
    - Users whose file changed, or would change in check mode.
  returned: success
  type: list
  elements: str
  sample: [trainer]
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_config as credentials

ENTRY: dict[str, t.Any] = {
    "user": {"type": "str", "required": True},
    "machine": {"type": "str", "required": True},
    "login": {"type": "str", "required": True},
    "password": {"type": "str", "required": True, "no_log": True},
}
SPEC = {"entries": {"type": "list", "elements": "dict", "required": True, "options": ENTRY}}


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Compare all files before any of them changes."""
    entries = [credentials.CredentialEntry(**entry) for entry in module.params["entries"]]
    todo = {}
    for user in dict.fromkeys(entry.user for entry in entries):
        path = credentials.path(user)
        mode, before = credentials.read(user, path)
        after = credentials.merge(before, [entry for entry in entries if entry.user == user])
        if after != before or (mode and mode != "600"):
            todo[user] = (path, after)
    if not module.check_mode:
        for user, (path, after) in todo.items():
            credentials.write(user, path, after)
    return {"changed": bool(todo), "users": list(todo)}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Cannot give users their credentials: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
