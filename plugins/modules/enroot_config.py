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
  - Writes drop-in files of its own and links the optional hooks that are wanted. Files and links of others stay.
  - Opens the kernel's limits of namespaces where they are closed, loads AppArmor's profile for enroot where AppArmor
    forbids namespaces, restores lost file capabilities, and then makes a namespace as the user nobody.
  - What the kernel and AppArmor allowed stays allowed with O(state=absent) until the next boot.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  state: {type: str, choices: [present, absent], default: present, description: V(absent) removes what it wrote.}
  settings:
    description:
      - Settings of enroot. enroot takes the first value it meets, a user's environment, then C(enroot.conf), then the
        files in C(enroot.conf.d) by name.
    type: dict
    default: {}
  environment: {type: dict, default: {}, description: Variables for all containers.}
  mounts: {type: list, elements: str, default: [], description: "Mounts for all containers, as lines of fstab."}
  hooks: {type: list, elements: str, default: [], description: "Optional hooks of the package, such as V(slurm-pmi)."}
"""

EXAMPLES = r"""
- name: Have containers write to their root, and take part in MPI
  hpcai.gpu_cluster.enroot_config:
    settings: {ENROOT_ROOTFS_WRITABLE: true}
    hooks: [slurm-pmi, slurm-pytorch]
"""

RETURN = r"""
findings: {description: What somebody should know., type: list, elements: dict, returned: success, sample: []}
"""

import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_conf as conf
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_host as host
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_links as links


def bring(module: AnsibleModule) -> dict[str, t.Any]:
    """Compare all first, so that a wrong value changes nothing."""
    params, wanted = module.params, module.params["state"] == "present"
    files = {conf.SETTINGS: conf.settings(params["settings"]), conf.MOUNTS: conf.mounts(params["mounts"])}
    files[conf.ENVIRONMENT] = conf.environment(params["environment"])
    files.update({host.SYSCTL: host.kernel_file(), host.PROFILE: host.apparmor_file()})
    changes, findings = owned.plan(files if wanted else dict.fromkeys(files))
    hooks = links.plan(params["hooks"] if wanted else [], present=Path(conf.EXTRA).is_dir())
    todo = [*changes, *hooks]
    closed = host.closed(files[host.SYSCTL]) if wanted else {}
    lost = host.capabilities_lost(host.CAPABILITIES) if wanted else {}
    if not module.check_mode:
        owned.apply(module, changes, {}, {})
        links.apply(hooks)
        host.allow(closed)
        host.give(lost)
    profile = wanted and (host.profile_missing() or any(one.path == host.PROFILE for one in changes))
    if not module.check_mode and wanted:
        if profile:
            host.load_profile()
        host.prove()
    diff = [*owned.differences(changes), *links.differences(hooks), *links.told({**closed, **lost})]
    return {"changed": bool(todo or closed or lost or profile), "findings": owned.told(findings), "diff": diff}


def main() -> None:
    spec = {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "settings": {"type": "dict", "default": {}},
        "environment": {"type": "dict", "default": {}},
        "mounts": {"type": "list", "elements": "str", "default": []},
        "hooks": {"type": "list", "elements": "str", "default": []},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        result = bring(module)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Cannot configure enroot: {exc}")
    for finding in result["findings"]:
        module.warn(finding["text"])
    module.exit_json(**result)


if __name__ == "__main__":
    main()
