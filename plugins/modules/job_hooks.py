#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep the programs that slurmd runs before and after jobs."""

from __future__ import annotations

DOCUMENTATION = r"""
module: job_hooks
short_description: Keep programs in the directories that slurmd runs before and after jobs
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Creates the directories that Slurm's C(Prolog) and C(Epilog) name as a pattern (C(/etc/slurm/prolog.d/*)), and adds
    or removes one part's programs there.
  - Each directory also gets the program C(00-hpcai), which does nothing and which this module never removes. slurmd
    fails all jobs of a node whose C(Prolog) pattern matches no file (Slurm 22.05, C(prep_script_slurmd.c)).
  - Everything is root's and written aside and renamed, so slurmd never runs half a program. Programs of other names
    are left alone.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  prolog_dir:
    description:
      - Directory of the programs that slurmd runs before a job, C(Prolog) of slurm.conf without the C(/*).
    type: path
    default: /etc/slurm/prolog.d
  epilog_dir:
    description:
      - Directory of the programs that slurmd runs after a job, C(Epilog) of slurm.conf without the C(/*).
    type: path
    default: /etc/slurm/epilog.d
  name:
    description:
      - File name of the programs, the same in both directories. Two digits, a hyphen, and lower-case letters, digits
        and hyphens. slurmd runs the programs of a directory in the order of their names.
      - Without it O(state=present) keeps the directories and C(00-hpcai) alone.
    type: str
  prolog:
    description:
      - Text of the program in O(prolog_dir). Its exit status other than 0 drains the node. Without it there is no
        program of that name there.
    type: str
  epilog:
    description:
      - Text of the program in O(epilog_dir). Its exit status other than 0 drains the node. Without it there is no
        program of that name there.
    type: str
  state:
    description:
      - V(present) keeps both directories and the programs in them.
      - V(absent) removes the programs called O(name), which it needs, and nothing else. The directories and C(00-hpcai)
        stay, since Slurm may still run what is in them.
    type: str
    choices: [present, absent]
    default: present
notes:
  - The module needs root privileges.
seealso:
  - module: hpcai.gpu_cluster.service_current
  - name: Prolog and Epilog Guide
    description: Who runs which program when, and what its exit status means.
    link: https://slurm.schedmd.com/prolog_epilog.html
"""
EXAMPLES = r"""
- name: Clean up after each job of a user
  hpcai.gpu_cluster.job_hooks:
    name: 50-site-cleanup
    epilog: |
      #!/bin/sh
      timeout 10 /usr/local/sbin/site-cleanup </dev/null
      exit 0
  become: true

- name: Prepare both directories before slurm.conf names them
  hpcai.gpu_cluster.job_hooks:
  become: true

- name: Remove the programs of a part that was switched off
  hpcai.gpu_cluster.job_hooks:
    name: 50-site-cleanup
    state: absent
  become: true
"""
RETURN = r"""
written:
  description: Files whose content changed, or in check mode would change.
  type: list
  elements: str
  returned: success
  sample: [/etc/slurm/epilog.d/00-hpcai, /etc/slurm/epilog.d/50-site-cleanup, /etc/slurm/prolog.d/00-hpcai]
removed:
  description: Files that were removed, or in check mode would be.
  type: list
  elements: str
  returned: success
  sample: []
"""

import re
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import FileError, keep_all

SPEC = {
    "prolog_dir": {"type": "path", "default": "/etc/slurm/prolog.d"},
    "epilog_dir": {"type": "path", "default": "/etc/slurm/epilog.d"},
    "name": {"type": "str"},
    "prolog": {"type": "str"},
    "epilog": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}


ANCHOR = "00-hpcai"
IDLE = "#!/bin/sh\n# Does nothing: without any program here Slurm would fail all jobs.\nexit 0\n"
NAME = re.compile(r"[0-9]{2}-[a-z0-9]+(-[a-z0-9]+)*")


def entries(params: t.Mapping[str, t.Any]) -> list[dict[str, t.Any]]:
    """Return the directories and programs that are wanted, a directory before what is in it."""
    files: list[dict[str, t.Any]] = []
    for event in ("prolog", "epilog"):
        folder = params[f"{event}_dir"]
        files.append({"path": folder, "owner": "root"})
        files.append({"path": f"{folder}/{ANCHOR}", "content": IDLE, "owner": "root", "mode": "0755"})
        if params["name"] and params[event] is not None:
            program = {"path": f"{folder}/{params['name']}", "content": params[event], "owner": "root", "mode": "0755"}
            files.append(program)
    return files


def unwanted(params: t.Mapping[str, t.Any]) -> list[Path]:
    """Return this part's programs that are there and are not wanted."""
    gone = [
        Path(params[f"{event}_dir"], params["name"])
        for event in ("prolog", "epilog")
        if params["name"] and (params["state"] == "absent" or params[event] is None)
    ]
    return [path for path in gone if path.is_symlink() or path.exists()]


def refuse(params: t.Mapping[str, t.Any]) -> None:
    """Raise FileError for a name that is none, or not this part's to have, and for programs without a name."""
    name = params["name"]
    if name and (not NAME.fullmatch(name) or name == ANCHOR):
        raise FileError(
            f"the name {name!r} of programs around jobs must be two digits, a hyphen, and lower-case letters, digits "
            f"and hyphens, such as 50-site-cleanup, and not {ANCHOR}, which all parts share"
        )
    if not name and (params["prolog"] is not None or params["epilog"] is not None):
        raise FileError("a program around jobs needs a name, such as 50-site-cleanup")


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Keep the programs that are wanted, and remove this part's others."""
    params = module.params
    refuse(params)
    removed = unwanted(params)
    changed, written, diff = keep_all(module, entries(params) if params["state"] == "present" else [])
    for path in removed:
        header = {"before_header": str(path), "after_header": str(path)}
        diff.append({**header, "before": "file\n", "after": "absent\n"})
        try:
            if not module.check_mode:
                path.unlink()
        except OSError as exc:
            raise FileError(f"Cannot remove a program around jobs: {exc}") from exc
    gone = [str(path) for path in removed]
    return {"changed": changed or bool(gone), "written": sorted(written), "removed": gone, "diff": diff}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True, required_if=[("state", "absent", ["name"])])
    try:
        result = perform(module)
    except (FileError, OSError) as exc:
        module.fail_json(msg=str(exc))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
