#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exchange a munge key in steps that a cluster takes together."""

from __future__ import annotations

DOCUMENTATION = r"""
module: munge_key_rotation
short_description: Exchange the munge key of a host, in steps that a cluster takes together
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    The next key is written beside the key first, on all hosts. Then each host renames it and restarts C(munged), which
    takes about a second. The previous key stays beside until the new one is proved.
  - >-
    All files have mode 0400 and belong to O(owner). None is ever part of a result, diff or log.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  state:
    description:
      - V(read) changes nothing and returns RV(marks).
      - V(staged) writes O(key) beside the present one. While C(munged) runs nothing changes for it.
      - V(exchanged) makes the staged key the key, keeps the former one, restarts C(munged) and decodes a credential of
        its own. Where that fails the former key is put back at once, and the module fails. A host without a staged key
        is left as it is.
      - V(returned) puts the former key back and restarts C(munged), where there is one.
      - V(settled) removes staged and former keys.
    type: str
    choices: [read, staged, exchanged, returned, settled]
    required: true
  key:
    description:
      - The next key in base64, at least 32 bytes. Needed for O(state=staged).
    type: str
  salt:
    description:
      - Text by which RV(marks) of different runs differ, so that nobody learns anything from them.
    type: str
    default: ''
  path:
    description:
      - File of the key. The others have its name with C(.next) and C(.previous).
    type: path
    default: /etc/munge/munge.key
  owner:
    description:
      - User and group that own the files.
    type: str
    default: munge
  unit:
    description:
      - Unit of C(munged).
    type: str
    default: munge
notes:
  - The playbook C(rotate_munge_key.yml) calls this module, with C(slurmctld) stopped.
  - Needs root.
seealso:
  - module: hpcai.gpu_cluster.munge_key
"""
EXAMPLES = r"""
- name: Write the next key beside the present one
  hpcai.gpu_cluster.munge_key_rotation:
    state: staged
    key: "{{ next_key }}"
  become: true
  no_log: true

- name: Exchange the keys
  hpcai.gpu_cluster.munge_key_rotation:
    state: exchanged
  become: true

- name: Remove the former keys
  hpcai.gpu_cluster.munge_key_rotation:
    state: settled
  become: true
"""
RETURN = r"""
marks:
  description:
    - Marks of the keys before the change, equal for equal keys and O(salt), empty where there is no such file.
  returned: success
  type: dict
  contains:
    key:
      description: Mark of the key.
      returned: always
      type: str
      sample: 5feceb66ffc86f38
    next:
      description: Mark of the staged key.
      returned: always
      type: str
      sample: ''
    previous:
      description: Mark of the former key.
      returned: always
      type: str
      sample: ''
"""

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import pwd
import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._munge_rotation import LEAST, Keys
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import replace_owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run

SPEC = {
    "state": {
        "type": "str",
        "choices": ["read", "staged", "exchanged", "returned", "settled"],
        "required": True,
    },
    "key": {"type": "str", "no_log": True},
    "salt": {"type": "str", "default": ""},
    "path": {"type": "path", "default": "/etc/munge/munge.key"},
    "owner": {"type": "str", "default": "munge"},
    "unit": {"type": "str", "default": "munge"},
}


_TRIES = 20


class RotationError(Exception):
    """A step that cannot be taken; the text is fit for the user."""


class Rotation:
    """The keys of one host."""

    def __init__(self, path: Path, owner: str, unit: str) -> None:
        self.key, self.owner, self.unit = path, owner, unit
        self.next = path.with_name(f"{path.name}.next")
        self.previous = path.with_name(f"{path.name}.previous")

    def marks(self, salt: str) -> Keys:
        """Return a digest of each key, the present, the next and the previous one; empty where there is none."""
        contents = [self._content(path) for path in (self.key, self.next, self.previous)]
        return Keys(
            *[hmac.new(salt.encode(), text, hashlib.sha256).hexdigest()[:16] if text else "" for text in contents]
        )

    def _content(self, path: Path) -> bytes:
        try:
            users = _trusted.trusted_users(pwd.getpwnam(self.owner).pw_uid)
            return _trusted.read(str(path), users)
        except FileNotFoundError:
            return b""

    def staged(self, key: bytes, write: bool) -> bool:
        """Put the next key beside the present one; return whether it was not there."""
        if len(key) < LEAST:
            raise RotationError(f"the next key has {len(key)} bytes, and munged takes no key of less than {LEAST}")
        if self.previous.exists():
            raise RotationError(f"{self.previous} is there: a rotation was cut short. Settle or return it first")
        if self._content(self.next) == key:
            return False
        if write:
            replace_owned(self.next, key, self.owner, 0o400)
        return True

    def exchanged(self, write: bool) -> bool:
        """Have munged use the next key and keep the former; return whether there was one. A failure puts it back."""
        if not self.next.exists():
            return False
        if write:
            # Whole files and names of their own at every moment: whoever is killed in between leaves a key.
            with contextlib.suppress(FileNotFoundError):
                self.previous.unlink()
            os.link(self.key, self.previous)
            self.next.replace(self.key)
            problem = self.restart()
            if problem:
                self.previous.replace(self.key)
                again = self.restart()
                raise RotationError(f"{problem}; the former key is back{f', and {again}' if again else ''}")
        return True

    def returned(self, write: bool) -> bool:
        """Have munged use the former key again; return whether there was one."""
        if not self.previous.exists():
            return False
        if write:
            self.previous.replace(self.key)
            problem = self.restart()
            if problem:
                raise RotationError(f"the former key is back, and {problem}")
        return True

    def settled(self, write: bool) -> bool:
        """Remove the keys that are not in use; return whether there were any."""
        leftover = [path for path in (self.next, self.previous) if path.exists()]
        for path in leftover if write else []:
            path.unlink()
        return bool(leftover)

    def restart(self) -> str:
        """Restart munged and decode a credential; say what is wrong, or nothing."""
        outcome = run(["systemctl", "restart", self.unit], 60)
        if outcome.problem:
            return f"systemctl restart {self.unit} failed: {outcome.problem}"
        problem = ""
        for dummy in range(_TRIES):
            made = run(["munge", "--no-input"], 10)
            problem = made.problem or run(["unmunge", "--output=/dev/null"], 10, made.out).problem
            if not problem:
                return ""
            time.sleep(0.1)
        return f"munged runs with the key and does not decode its own credential: {problem}"


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Take one step of the rotation; the marks say which keys there were before it."""
    rotation = Rotation(Path(params["path"]), params["owner"], params["unit"])
    state, write, changed = params["state"], not check_mode, False
    marks = rotation.marks(params["salt"])
    if state == "staged":
        changed = rotation.staged(base64.b64decode(params["key"], validate=True), write)
    elif state != "read":
        changed = getattr(rotation, state)(write)
    return {"changed": changed, "marks": marks._asdict()}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, required_if=[("state", "staged", ["key"])], supports_check_mode=True)
    params = module.params
    try:
        result = perform(params, module.check_mode)
    except (RotationError, _trusted.TrustError, OSError, KeyError, binascii.Error) as exc:
        module.fail_json(msg=f"Munge key of {params['path']}, state {params['state']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
