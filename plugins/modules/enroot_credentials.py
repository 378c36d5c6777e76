#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: enroot_credentials
short_description: Give users passwords for container registries
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Keeps lines of C(~/.config/enroot/.credentials), a file for its user alone, where enroot looks for passwords.
  - Files are read and written with the user's rights, over the standard input of a program. Lines that users have
    there themselves stay.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  entries:
    description: Passwords.
    type: list
    elements: dict
    required: true
    suboptions:
      user: {type: str, required: true, description: User of this host.}
      machine: {type: str, required: true, description: "Name of the registry, without its port."}
      login: {type: str, required: true, description: Name of the user there.}
      password:
        description: The password or token there. With an empty one the line is removed.
        type: str
        required: true
"""

EXAMPLES = r"""
- name: Let a user import images from a private registry
  hpcai.gpu_cluster.enroot_credentials:
    entries:
      - {user: trainer, machine: nvcr.io, login: $oauthtoken, password: "{{ vault_ngc_key }}"}
"""

RETURN = r"""
users: {description: Users whose file changed., type: list, elements: str, returned: success, sample: [trainer]}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_credentials as credentials


def bring(module: AnsibleModule) -> dict[str, t.Any]:
    """Compare all files before any of them changes."""
    entries = [credentials.Entry(**one) for one in module.params["entries"]]
    todo = {}
    for user in dict.fromkeys(one.user for one in entries):
        place = credentials.path(user)
        mode, before = credentials.read(user, place)
        after = credentials.merge(before, [one for one in entries if one.user == user])
        if after != before or (mode and mode != "600"):
            todo[user] = (place, after)
    if not module.check_mode:
        for user, (place, after) in todo.items():
            credentials.write(user, place, after)
    return {"changed": bool(todo), "users": list(todo)}


def main() -> None:
    entry = {name: {"type": "str", "required": True} for name in ("user", "machine", "login")}
    entry["password"] = {"type": "str", "required": True, "no_log": True}
    spec = {"entries": {"type": "list", "elements": "dict", "required": True, "options": entry}}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        result = bring(module)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Cannot give users their credentials: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
