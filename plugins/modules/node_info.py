#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What roles would else ask a machine one by one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: Read the facts of a machine, and which packages, services and files it has
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Reads in one task what the roles of this collection otherwise read in tasks of their own. Nothing is changed.
  - If its result is registered as C(hpcai_node), the roles do not run these tasks. It is not returned as facts, since a
    cache would carry them into a later run, in which they may be wrong. Only O(facts) are, as the machine itself.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details:
      - The module only reads, in check mode as well.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  facts:
    description:
      - Facts of Ansible to gather in the same step, as C(gather_subset) of M(ansible.builtin.setup) names them, so that
        the machine is asked once.
    type: list
    elements: str
    default: []
  fact_path:
    description:
      - Directory of the machine's own facts, which C(local) of O(facts) reads.
    type: path
    default: /etc/ansible/facts.d
  packages:
    description:
      - Names of Debian packages to look for.
    type: list
    elements: str
    default: []
  services:
    description:
      - Names of systemd units whose state is read.
    type: list
    elements: str
    default: []
  files:
    description:
      - Paths whose owner, mode and content are read. Symbolic links are not followed.
    type: list
    elements: path
    default: []
  slurm:
    description:
      - Whether to read the release of Slurm from its commands.
    type: bool
    default: false
  units:
    description:
      - Services of which M(hpcai.gpu_cluster.service_current) keeps the files. Where it would find nothing to do, its
        task can be skipped (filter P(hpcai.gpu_cluster.service_settled#filter)).
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - Name of the unit, as the module has it.
        type: str
        required: true
      files:
        description:
          - Paths of its files, that of the unit among them. Of a directory all files in it are read, but for those that
            Python compiled.
        type: list
        elements: path
        default: []
  users:
    description:
      - Names of users to look for, wherever the machine has its users from.
      - If there are any, RV(ids) is read as well.
    type: list
    elements: str
    default: []
"""
EXAMPLES = r"""
- name: Read whether munge is installed and runs
  hpcai.gpu_cluster.node_info:
    packages: [munge]
    services: [munge.service]
  register: hpcai_node

- name: Install munge
  ansible.builtin.apt:
    name: munge
  when: "'munge' not in hpcai_node.packages"
  become: true

- name: Gather facts, and read the owner, mode and digest of slurm.conf and the release of Slurm
  hpcai.gpu_cluster.node_info:
    facts: ["!all", "!min", distribution, hardware]
    files: [/etc/slurm/slurm.conf]
    slurm: true
  become: true
  register: hpcai_node
"""
RETURN = r"""
ansible_facts:
  description: The facts that O(facts) asks for, as M(ansible.builtin.setup) returns them.
  type: dict
  returned: success
  sample: {ansible_distribution: Debian, ansible_distribution_major_version: "12", ansible_processor_vcpus: 96}
packages:
  description: Those of O(packages) that are installed. Empty without dpkg.
  type: list
  elements: str
  returned: success
  sample: [munge]
services:
  description:
    - What C(systemctl is-active) prints for each of O(services), V(inactive) also for a unit that does not exist.
  type: dict
  returned: success
  sample: {munge.service: active, healthagent.service: inactive}
slurm:
  description: Release of Slurm. Empty without O(slurm), and where its commands are missing.
  type: str
  returned: success
  sample: 24.11.5
files:
  description:
    - Those of O(files) that exist, with owner, group, mode and the SHA-256 of their content. A file that cannot be
      read, or whose owner has no name, is left out. What is no regular file has no digest.
  type: dict
  returned: success
  sample: {/etc/slurm/slurm.conf: "root:root 0644 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"}
units:
  description:
    - Those of O(units) that are enabled and run, and have started since their files were written, with the owner,
      group, mode and SHA-256 of each file. Files that another user than root could exchange are left out.
  type: dict
  returned: success
  sample:
    hpcai-scratch:
      /etc/hpcai/nvme_scratch.json: "root:root 0644 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
users:
  description: Those of O(users) that exist, with the numbers of user and primary group.
  type: dict
  returned: success
  sample: {trainer: {uid: 2000, gid: 2000}}
ids:
  description:
    - Numbers from 1000 to 59999 that users or groups have. Directory services often do not list theirs, and are then
      missing here. Empty without O(users).
  type: list
  elements: int
  returned: success
  sample: [1000, 2000]
"""

import contextlib
import grp
import hashlib
import os
import pwd
import stat
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.facts.compat import ansible_facts

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _systemd, _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import installed_release
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError

SPEC = {
    "facts": {"type": "list", "elements": "str", "default": []},
    "fact_path": {"type": "path", "default": "/etc/ansible/facts.d"},
    "packages": {"type": "list", "elements": "str", "default": []},
    "services": {"type": "list", "elements": "str", "default": []},
    "files": {"type": "list", "elements": "path", "default": []},
    "slurm": {"type": "bool", "default": False},
    "units": {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": {
            "name": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "path", "default": []},
        },
    },
    "users": {"type": "list", "elements": "str", "default": []},
}


ORDINARY = range(1000, 60000)  # UID_MIN to just below UID_MAX in login.defs of Debian, Ubuntu and RHEL


def facts(module: AnsibleModule) -> dict[str, t.Any]:
    """By the names that setup gives them; one of them, ansible_local, goes by that name in ansible_facts, too."""
    return {f"ansible_{name}": value for name, value in ansible_facts(module, module.params["facts"]).items()}


def installed(module: AnsibleModule, names: list[str]) -> list[str]:
    """Without dpkg nothing is known to be there, and whoever needs a package asks for it."""
    if not names or not module.get_bin_path("dpkg-query"):
        return []
    # 1 says that one of them is unknown.
    text = module.run_command(["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package}\n", *names])[1]
    return sorted({line.split()[1] for line in text.splitlines() if line.startswith("installed ")})


def services(module: AnsibleModule, names: list[str]) -> dict[str, str]:
    """One line for each."""
    if not names or not module.get_bin_path("systemctl"):
        return {}
    return dict(zip(names, module.run_command(["systemctl", "is-active", *names])[1].split()))


def slurm(module: AnsibleModule) -> str:
    """One that does not tell is left to whoever needs to know."""
    with contextlib.suppress(SlurmError):
        return installed_release(module) if module.params["slurm"] else ""
    return ""


def files(paths: list[str]) -> dict[str, str]:
    """What changes with anything that a task could have to put right."""
    contents = {}
    for path in map(Path, paths):
        with contextlib.suppress(OSError, KeyError):
            seen = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(seen.st_mode) else ""
            contents[str(path)] = described(seen, content)
    return contents


def described(seen: os.stat_result, digest: str) -> str:
    """Raise KeyError for an owner or group without a name."""
    owner = f"{pwd.getpwuid(seen.st_uid).pw_name}:{grp.getgrgid(seen.st_gid).gr_name}"
    return f"{owner} {stat.S_IMODE(seen.st_mode):04o} {digest}".strip()


def below(paths: list[str]) -> list[str]:
    """The paths, with the files of a directory in its place but for what Python compiles of them when they run."""
    found = []
    for path in map(Path, paths):
        inside = [file for file in path.rglob("*") if not file.is_dir() and file.suffix != ".pyc"]
        found += sorted(map(str, inside)) if path.is_dir() and not path.is_symlink() else [str(path)]
    return found


def trusted_files(paths: list[str]) -> dict[str, str]:
    """As ``files`` tells of them, but only of regular ones that nobody but root could put into the place of others."""
    trusted, contents = _trusted.trusted_users(), {}
    for path in paths:
        with contextlib.suppress(OSError, KeyError, _trusted.TrustError):
            content = _trusted.content(path, trusted)
            if content is not None:
                contents[path] = described(os.lstat(path), hashlib.sha256(content).hexdigest())
    return contents


def units(module: AnsibleModule, wanted: list[dict[str, t.Any]]) -> dict[str, dict[str, str]]:
    """Those that are as they should be if their files are."""
    if not wanted or not module.get_bin_path("systemctl"):
        return {}
    paths = {unit["name"]: below(unit["files"]) for unit in wanted}
    return {name: trusted_files(paths[name]) for name in _systemd.settled(module, paths)}


def users(names: list[str]) -> dict[str, dict[str, int]]:
    """As the machine resolves them, from a file or a directory service."""
    known = {}
    for name in names:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            known[name] = {"uid": entry.pw_uid, "gid": entry.pw_gid}
    return known


def ids() -> list[int]:
    """What useradd would not give to a new user, as far as it is listed."""
    numbers = {entry.pw_uid for entry in pwd.getpwall()} | {entry.gr_gid for entry in grp.getgrall()}
    return sorted(number for number in numbers if number in ORDINARY)


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Return what was asked for, and nothing else."""
    params = module.params
    return {
        "ansible_facts": facts(module) if params["facts"] else {},
        "packages": installed(module, params["packages"]),
        "services": services(module, params["services"]),
        "slurm": slurm(module),
        "files": files(params["files"]),
        "units": units(module, params["units"]),
        "users": users(params["users"]),
        "ids": ids() if params["users"] else [],
    }


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module)
    except TypeError as exc:
        module.fail_json(msg=f"{module.params['facts']} are no facts to gather: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
