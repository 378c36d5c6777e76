#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: enroot_config
short_description: Configure enroot, and let the host run containers of ordinary users
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Writes drop-in files of its own for settings, mounts and variables, and links the optional hooks that are listed.
    Files and links that somebody else made stay as they are. A file of somebody else at the path of a drop-in is kept
    and reported in RV(findings).
  - >-
    Raises the kernel's limits of user and mount namespaces where they are closed, loads the AppArmor profile that the
    enroot package carries where AppArmor restricts namespaces, and restores lost file capabilities of enroot's
    programs.
  - >-
    Then makes a namespace as the user C(nobody) and fails when that is not possible. This test is not run in check
    mode.
  - >-
    All values are checked before anything changes, because enroot ignores a line that it does not know and starts no
    container at all with one that its shell cannot read.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - >-
        V(absent) removes the files and links of this module. What the kernel and AppArmor allowed stays allowed until
        the next boot, and file capabilities stay.
    type: str
    choices: [present, absent]
    default: present
  settings:
    description:
      - >-
        Settings of enroot, such as C(ENROOT_ROOTFS_WRITABLE), for C(/etc/enroot/enroot.conf.d/10-hpcai.conf). A name
        that enroot does not read is refused. Without any the file is removed.
      - >-
        Values are one line in the syntax of the shell, so C(${HOME}) is expanded. Booleans are written as C(yes) and
        C(no).
      - >-
        enroot takes the first value that it meets, from the environment of the user, then C(enroot.conf), then the
        files in C(enroot.conf.d) by name.
    type: dict
    default: {}
  environment:
    description:
      - >-
        Environment variables of all containers, for C(/etc/enroot/environ.d/50-hpcai.env). Values are one line. Without
        any the file is removed.
    type: dict
    default: {}
  mounts:
    description:
      - >-
        Mounts of all containers, for C(/etc/enroot/mounts.d/50-hpcai.fstab), each a line of two to six fields as in
        C(fstab). Without any the file is removed.
    type: list
    elements: str
    default: []
  hooks:
    description:
      - >-
        Optional hooks that the enroot package carries in C(/usr/share/enroot/hooks.d), by their names without number
        and C(.sh), such as V(slurm-pmi). A hook that the package does not carry is refused; while enroot is not
        installed none is linked.
      - Hooks that this module linked and that are not listed any more are unlinked.
    type: list
    elements: str
    default: []
seealso:
  - module: hpcai.gpu_cluster.enroot_credentials
  - module: hpcai.gpu_cluster.enroot_package
  - name: enroot configuration
    description: The settings, mounts and hooks of enroot.
    link: https://github.com/NVIDIA/enroot/blob/master/doc/configuration.md
"""

EXAMPLES = r"""
- name: Make the root of containers writable and let them take part in MPI
  hpcai.gpu_cluster.enroot_config:
    settings:
      ENROOT_ROOTFS_WRITABLE: true
    hooks: [slurm-pmi, slurm-pytorch]
  become: true

- name: Keep the data of containers on local scratch
  hpcai.gpu_cluster.enroot_config:
    settings:
      ENROOT_RUNTIME_PATH: /scratch/enroot/$EUID/run
      ENROOT_CACHE_PATH: /scratch/enroot/$EUID/cache
      ENROOT_DATA_PATH: /scratch/enroot/$EUID/data
      ENROOT_MOUNT_HOME: false
  become: true

- name: Give all containers the NCCL settings of the node
  hpcai.gpu_cluster.enroot_config:
    environment:
      NCCL_DEBUG: WARN
    mounts:
      - /etc/nccl.conf /etc/nccl.conf none x-create=file,bind,ro,nosuid,nodev,noexec,nofail,silent
    hooks: [slurm-pmi, slurm-pytorch]
  become: true

- name: Remove what this module wrote
  hpcai.gpu_cluster.enroot_config:
    state: absent
  become: true
"""

RETURN = r"""
findings:
  description:
    - Files that were left as they are because somebody else wrote them. Each is a warning of the task too.
  returned: success
  type: list
  elements: dict
  contains:
    level:
      description:
        - How serious it is.
      returned: always
      type: str
      sample: warn
    about:
      description:
        - Path of the file.
      returned: always
      type: str
      sample: /etc/enroot/mounts.d/50-hpcai.fstab
    text:
      description:
        - What was found, as a sentence that names the file.
      returned: always
      type: str
      sample: >-
        /etc/enroot/mounts.d/50-hpcai.fstab: is there and was not written by this role: left as it is. Move it away to
        have ours
"""

import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_config
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_host as host

SPEC = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "settings": {"type": "dict", "default": {}},
    "environment": {"type": "dict", "default": {}},
    "mounts": {"type": "list", "elements": "str", "default": []},
    "hooks": {"type": "list", "elements": "str", "default": []},
}


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Compare all first, so that a wrong value changes nothing."""
    params, present = module.params, module.params["state"] == "present"
    files = {
        enroot_config.SETTINGS: enroot_config.settings(params["settings"]),
        enroot_config.MOUNTS: enroot_config.mounts(params["mounts"]),
    }
    files[enroot_config.ENVIRONMENT] = enroot_config.environment(params["environment"])
    files.update({host.SYSCTL: host.kernel_file(), host.PROFILE: host.apparmor_file()})
    changes, findings = owned.plan(files if present else dict.fromkeys(files))
    hooks = enroot_config.plan(params["hooks"] if present else [], present=Path(enroot_config.EXTRA).is_dir())
    todo = [*changes, *hooks]
    closed = host.closed(files[host.SYSCTL]) if present else {}
    lost = host.capabilities_lost(host.CAPABILITIES) if present else {}
    if not module.check_mode:
        owned.apply(module, changes, {}, {})
        enroot_config.apply(hooks)
        host.allow(closed)
        host.give(lost)
    profile = present and (host.profile_missing() or any(change.path == host.PROFILE for change in changes))
    if not module.check_mode and present:
        if profile:
            host.load_profile()
        host.prove()
    diff = [
        *owned.differences(changes),
        *enroot_config.differences(hooks),
        *enroot_config.setting_differences({**closed, **lost}),
    ]
    return {"changed": bool(todo or closed or lost or profile), "findings": owned.facts(findings), "diff": diff}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Cannot configure enroot: {exc}")
    for finding in result["findings"]:
        module.warn(finding["text"])
    module.exit_json(**result)


if __name__ == "__main__":
    main()
