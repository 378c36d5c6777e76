#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: trusted_directory
short_description: Directories on storage that users write to, which nobody but root and their owner can have made
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Makes directories with an owner, a group and a mode, as M(ansible.builtin.file) does, on file systems where others
    may write as well, for example a shared directory of mode 1777.
  - Each path is walked from the root, component by component, through open handles. Every component has to belong to
    root, to the owner asked for or to a user in O(trusted), and nobody else may be able to write to it unless it is
    sticky. Symbolic links are only followed when they belong to one of these users. This is what the option
    C(StrictModes) of sshd asks of the files that it believes.
  - All directories are looked at before the first is made or changed. Nothing inside of a directory is ever changed.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  directories:
    description:
      - The directories, parents before what is below them. Missing parents that are not in the list belong to the user
        who runs the module and get mode 0755.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description:
          - Absolute path. C(~) and variables are not expanded.
        type: str
        required: true
      owner:
        description:
          - Name of the user that owns the directory.
        type: str
        default: root
      group:
        description:
          - Name of its group. The default is the primary group of O(directories[].owner).
        type: str
      mode:
        description:
          - Permissions in octal digits, set exactly, whatever the umask is. A directory that others could write to and
            that is not empty is refused, unless this mode is sticky, as what is in it may be anybody's.
        type: str
        default: "0755"
  trusted:
    description:
      - Names of more users that may own a part of the way, for example the account that administers the file server.
    type: list
    elements: str
    default: []
notes:
  - Needs root privileges, or those of the owner, for example where an NFS server turns root into nobody (root_squash).
  - NFSv4 ACLs do not show up in permission bits and are not looked at.
seealso:
  - module: ansible.builtin.file
"""
EXAMPLES = r"""
- name: Create a directory for everybody's logs on the shared directory
  hpcai.gpu_cluster.trusted_directory:
    directories:
      - path: /shared/examples
      - path: /shared/examples/logs
        mode: "1777"
  become: true

- name: Create the certification user's directory, where a colleague owns the share
  hpcai.gpu_cluster.trusted_directory:
    directories:
      - path: /shared/certification
        owner: certify
    trusted: [storage-admin]
  become: true

- name: Create it as the user itself, on a share that turns root into nobody
  hpcai.gpu_cluster.trusted_directory:
    directories:
      - path: /shared/certification
        owner: certify
  become: true
  become_user: certify
"""
RETURN = r"""
directories:
  description: What was changed of each directory, or in check mode would be, in the order of O(directories).
  type: list
  elements: dict
  returned: success
  contains:
    path:
      description: The directory.
      type: str
    changes:
      description: V(created), or what differed, as it was and as it is. Empty when nothing did.
      type: list
      elements: str
  sample:
    - {path: /shared/examples, changes: []}
    - {path: /shared/examples/logs, changes: [mode 0755 -> 1777]}
"""

import grp
import pwd
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import (
    Directory,
    TrustError,
    have,
    look,
    trusted_users,
)

SPEC = {
    "directories": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "path": {"type": "str", "required": True},
            "owner": {"type": "str", "default": "root"},
            "group": {"type": "str"},
            "mode": {"type": "str", "default": "0755"},
        },
    },
    "trusted": {"type": "list", "elements": "str", "default": []},
}


def read_directory(entry: t.Mapping[str, t.Any]) -> Directory:
    """Turn an entry into a Directory; raise TrustError where its owner, group or mode is none."""
    try:
        user = pwd.getpwnam(entry["owner"])
        gid = grp.getgrnam(entry["group"]).gr_gid if entry["group"] else user.pw_gid
        mode = int(entry["mode"], 8)
    except (KeyError, ValueError) as exc:
        raise TrustError(f"{entry['path']}: {exc}") from exc
    if not 0 <= mode <= 0o7777:
        raise TrustError(f"{entry['path']}: mode {entry['mode']} is none of 0000 to 7777")
    return Directory(entry["path"], user.pw_uid, gid, mode)


def known(name: str) -> bool:
    """Say whether there is such a user."""
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    entries = module.params["directories"]
    results: list[dict[str, t.Any]] = []
    diffs: list[dict[str, str]] = []
    if module.check_mode:
        # The package that makes the user may not be installed yet.
        late = [entry for entry in entries if not known(entry["owner"])]
        results = [{"path": entry["path"], "changes": ["created"]} for entry in late]
        entries = [entry for entry in entries if entry not in late]
    try:
        wanted = [read_directory(entry) for entry in entries]
        more = [pwd.getpwnam(name).pw_uid for name in module.params["trusted"]]
        users = [trusted_users(one.uid, *more) for one in wanted]
        planned = [look(one, trusted) for one, trusted in zip(wanted, users)]
        for one, trusted, changes in zip(wanted, users, planned):
            made = changes if module.check_mode or not changes else have(one, trusted)
            results.append({"path": one.path, "changes": made})
            if made:
                header = {"before_header": one.path, "after_header": one.path}
                diffs.append({**header, "before": "", "after": "".join(f"{change}\n" for change in made)})
    except (TrustError, OSError, KeyError) as exc:
        done = [entry["path"] for entry in results if entry["changes"]]
        state = f"Changed before that: {', '.join(done)}." if done and not module.check_mode else "Nothing was changed."
        module.fail_json(msg=f"Cannot use a directory that others could exchange: {exc}. {state}", directories=results)
    module.exit_json(changed=any(entry["changes"] for entry in results), directories=results, diff=diffs)


if __name__ == "__main__":
    main()
