#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: trusted_directory
short_description: Directories and files on storage that users write to, which only root and their owner can have made
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Makes directories with an owner, a group and a mode, as M(ansible.builtin.file) does, on file systems where others
    may write as well, for example a shared directory of mode 1777.
  - Each path is walked from the root, component by component, through open handles. Every component has to belong to
    root, to the owner asked for or to a user in O(trusted), and nobody else may be able to write to it unless it is
    sticky. Of symbolic links root follows its own alone. This is what the option C(StrictModes) of sshd asks of the
    files that it believes.
  - Everything is looked at before the first directory is made or changed. Nothing inside of a directory is changed,
    except for the O(files).
  - What root may not do, for example because an NFS server turns root into nobody (C(root_squash)), is done with the
    rights of the owner, where the owner may do it.
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
    default: []
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
            that is not empty is refused, unless this mode is sticky or lets them write too, as what is in it may be
            anybody's.
        type: str
        default: "0755"
      reserve:
        description:
          - Make the directory where there is nothing of its name, so that no user can make it first, and leave alone
            what is there, whoever made it. Where it cannot be made the module warns, and RV(refused) says why.
        type: bool
        default: false
  files:
    description:
      - Files in directories of this kind. They are written aside and renamed in the directory that was walked to. A
        link in their place is refused, as is a file of another user.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description:
          - Absolute path, in one of O(directories) or in another directory that can be trusted.
        type: str
        required: true
      content:
        description:
          - Content of a text file. Either this or O(files[].base64) is needed.
        type: str
      base64:
        description:
          - Content of a file that is not text, in base64.
        type: str
      owner:
        description:
          - Name of the user that owns the file.
        type: str
        default: root
      group:
        description:
          - Name of its group. The default is the primary group of O(files[].owner).
        type: str
      mode:
        description:
          - Permissions in octal digits, set exactly, whatever the umask is.
        type: str
        default: "0644"
  trusted:
    description:
      - Names of more users that may own a part of the way, for example the account that administers the file server.
    type: list
    elements: str
    default: []
notes:
  - Needs root privileges, or those of the owner of everything that it is asked for.
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

- name: Install a program in the user's directory without following a link of the user's
  hpcai.gpu_cluster.trusted_directory:
    directories:
      - path: /shared/certification
        owner: certify
    files:
      - path: /shared/certification/agent.pyz
        base64: "{{ lookup('ansible.builtin.file', 'agent.pyz') | b64encode }}"
        owner: certify
  become: true

- name: Reserve names on the shared directory before users can write to it
  hpcai.gpu_cluster.trusted_directory:
    directories:
      - path: /shared/pytorch
        reserve: true
      - path: /shared/images
        owner: images
        reserve: true
  become: true
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
files:
  description: What was changed of each file, or in check mode would be, in the order of O(files).
  type: list
  elements: dict
  returned: success
  contains:
    path:
      description: The file.
      type: str
    changes:
      description: V(created), V(content), or which owner, group or mode differed. Empty when nothing did.
      type: list
      elements: str
  sample:
    - {path: /shared/certification/agent.pyz, changes: [content]}
refused:
  description: Directories with O(directories[].reserve) that could not be made, and why.
  type: list
  elements: dict
  returned: success
  contains:
    path:
      description: The directory.
      type: str
    reason:
      description: What stands against it.
      type: str
  sample:
    - path: /shared/images
      reason: "'getpwnam(): name not found: images'"
"""

import base64
import binascii
import functools
import grp
import os
import pwd
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import (
    Directory,
    File,
    NotAllowedError,
    TrustError,
    by_root_or_owner,
    have,
    have_file,
    look,
    look_file,
    trusted_users,
)

SPEC: dict[str, t.Any] = {
    "directories": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "path": {"type": "str", "required": True},
            "owner": {"type": "str", "default": "root"},
            "group": {"type": "str"},
            "mode": {"type": "str", "default": "0755"},
            "reserve": {"type": "bool", "default": False},
        },
    },
    "files": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "mutually_exclusive": [["content", "base64"]],
        "required_one_of": [["content", "base64"]],
        "options": {
            "path": {"type": "str", "required": True},
            "content": {"type": "str", "no_log": False},
            "base64": {"type": "str", "no_log": False},
            "owner": {"type": "str", "default": "root"},
            "group": {"type": "str"},
            "mode": {"type": "str", "default": "0644"},
        },
    },
    "trusted": {"type": "list", "elements": "str", "default": []},
}
Entry = t.Mapping[str, t.Any]
Result = t.Dict[str, t.Any]


def attributes(entry: Entry) -> dict[str, int]:
    """Return owner, group and mode as numbers; raise TrustError where one is none."""
    try:
        user = pwd.getpwnam(entry["owner"])
        gid = grp.getgrnam(entry["group"]).gr_gid if entry["group"] else user.pw_gid
        mode = int(entry["mode"], 8)
    except (KeyError, ValueError) as exc:
        raise TrustError(f"{entry['path']}: {exc}") from exc
    if not 0 <= mode <= 0o7777:
        raise TrustError(f"{entry['path']}: mode {entry['mode']} is none of 0000 to 7777")
    return {"uid": user.pw_uid, "gid": gid, "mode": mode}


def content(entry: Entry) -> bytes:
    """Return the bytes of a file, which is given as text or in base64."""
    if entry["content"] is not None:
        return str(entry["content"]).encode()
    try:
        return base64.b64decode(entry["base64"], validate=True)
    except (binascii.Error, ValueError) as exc:
        raise TrustError(f"the content of {entry['path']} is not base64") from exc


def known(name: str) -> bool:
    """Say whether there is such a user."""
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False


class Step(t.NamedTuple):
    """One directory or file: what looks at it, what makes it, and for whom."""

    path: str
    uid: int
    look: t.Callable[[], list[str]]
    have: t.Callable[[], list[str]]


def step(entry: Entry, more: t.Sequence[int]) -> Step:
    """Return what looks at a directory or file, and what makes it."""
    own = attributes(entry)
    trusted = trusted_users(own["uid"], *more)
    if "reserve" in entry:
        folder = Directory(entry["path"], **own)
        return Step(
            folder.path, folder.uid, functools.partial(look, folder, trusted), functools.partial(have, folder, trusted)
        )
    file = File(entry["path"], content(entry), **own)
    return Step(
        file.path, file.uid, functools.partial(look_file, file, trusted), functools.partial(have_file, file, trusted)
    )


def settle(entries: t.Sequence[Entry], more: t.Sequence[int], check_mode: bool) -> t.Iterator[list[str]]:
    """Look at all of them, and then make one after the other; yield what was changed of each."""
    steps = [step(entry, more) for entry in entries]
    planned = [by_root_or_owner(part.look, part.uid) for part in steps]
    for part, changes in zip(steps, planned):
        yield changes if check_mode or not changes else by_root_or_owner(part.have, part.uid)


def reserve(entry: Entry, more: t.Sequence[int], check_mode: bool) -> tuple[list[str], str]:
    """Make a directory of whose name there is nothing; return what was done, and what stands against it."""
    try:
        if os.path.lexists(entry["path"]):
            return [], ""
        if check_mode and not known(entry["owner"]):  # a task of this run makes the user
            return ["created"], ""
        return next(settle([entry], more, check_mode)), ""
    except (TrustError, OSError) as exc:
        return [], str(exc)


def refusal(exc: Exception) -> str:
    """Return what was tried, in words: not every path that cannot be had is one that others could exchange."""
    distrusted = isinstance(exc, TrustError) and not isinstance(exc, NotAllowedError)
    return "Cannot use a path that others could exchange" if distrusted else "Cannot have the directories and files"


def perform(module: AnsibleModule) -> Result:
    """Have all directories and files, and reserve the directories that need not be had."""
    directories, files = module.params["directories"], module.params["files"]
    changes: dict[str, list[str]] = {}
    refused: list[Result] = []

    def listed() -> Result:
        return {
            name: [{"path": entry["path"], "changes": changes.get(entry["path"], [])} for entry in module.params[name]]
            for name in ("directories", "files")
        }

    kept = [entry for entry in [*directories, *files] if not entry.get("reserve")]
    if module.check_mode:
        # The package that makes the user may not be installed yet.
        changes = {entry["path"]: ["created"] for entry in kept if not known(entry["owner"])}
        kept = [entry for entry in kept if entry["path"] not in changes]
    try:
        more = [pwd.getpwnam(name).pw_uid for name in module.params["trusted"]]
        for entry, made in zip(kept, settle(kept, more, module.check_mode)):
            changes[entry["path"]] = made
    except (TrustError, OSError, KeyError) as exc:
        done = [path for path, made in changes.items() if made]
        state = f"Changed before that: {', '.join(done)}." if done and not module.check_mode else "Nothing was changed."
        module.fail_json(msg=f"{refusal(exc)}: {exc}. {state}", **listed())
    for entry in directories:
        if entry["reserve"]:
            changes[entry["path"]], reason = reserve(entry, more, module.check_mode)
            refused += [{"path": entry["path"], "reason": reason}] if reason else []
    diffs = [
        {"before_header": path, "after_header": path, "before": "", "after": "".join(f"{line}\n" for line in made)}
        for path, made in changes.items()
        if made
    ]
    return {"changed": bool(diffs), "refused": refused, "diff": diffs, **listed()}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    result = perform(module)
    if result["refused"]:
        reasons = "; ".join(f"{entry['path']} ({entry['reason']})" for entry in result["refused"])
        module.warn(f"Any user who may write there could make these first, and would own what is below: {reasons}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
