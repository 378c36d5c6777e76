#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: package_hold
short_description: Keep installed packages at their versions, and automatic upgrades away
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Holds the packages that are installed and fit a pattern, and can switch apt's periodic jobs off.
  - What an administrator holds is left alone. Released again is only what this module held, which O(record) tells.
  - A host without dpkg is left as it is.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  state: {type: str, choices: [present, absent], default: present, description: V(absent) gives everything back.}
  packages: {type: list, elements: str, default: [], description: "Names or patterns such as V(linux-image-*)."}
  automatic_upgrades:
    {type: bool, default: true, description: V(false) switches off that apt updates its lists and upgrades by itself.}
  only_on:
    {type: list, elements: path, default: [], description: "A host that has none of these paths is left as it is, or
     given back what it had. When empty, every host is meant."}
  record: {type: path, default: /var/lib/hpcai/package_hold.json, description: What the module held.}
"""
EXAMPLES = r"""
- name: Keep kernel and driver of an HPC image
  hpcai.gpu_cluster.package_hold:
    packages: ["linux-image-*", "nvidia-*"]
    automatic_upgrades: false
    only_on: [/opt/azurehpc]
"""
RETURN = r"""
findings: {description: What somebody should know., type: list, elements: dict, returned: success, sample: []}
held: {description: Packages that were held., type: list, elements: str, returned: success, sample: [linux-image-azure]}
released: {description: Packages that were released., type: list, elements: str, returned: success, sample: []}
"""

import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _package_hold as packages
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._managed_file import FileError


def bring(module: AnsibleModule) -> dict[str, t.Any]:
    """Hold and release what has to be."""
    params = module.params
    if not module.get_bin_path("dpkg-query"):
        text = "there is no dpkg here: packages and automatic upgrades are left as they are"
        return {"changed": False, "findings": owned.told([owned.Finding("warn", "packages", text)])}
    meant = not params["only_on"] or any(Path(path).exists() for path in params["only_on"])
    wanted = params["state"] == "present" and meant
    record = owned.load(params["record"])
    now = packages.installed(module.run_command(packages.SHOW, check_rc=True)[1])
    todo = packages.plan(now, params["packages"] if wanted else [], record.get("held", []))
    off = packages.PERIODIC if wanted and not params["automatic_upgrades"] else None
    changes, findings = owned.plan({packages.APT: off})
    if not module.check_mode:
        carry_out(module, todo, changes, record)
    diffs = [*owned.differences(changes), *todo.difference()]
    changed = bool(changes or todo.hold or todo.release)
    return {
        "changed": changed,
        "held": todo.hold,
        "released": todo.release,
        "findings": owned.told(findings),
        "diff": diffs,
    }


def carry_out(module: AnsibleModule, todo: packages.Plan, changes: list[owned.Change], record: owned.Json) -> None:
    """The record tells what is held, also when dpkg refuses because somebody else is at work."""
    path = module.params["record"]
    record["held"] = sorted({*todo.held, *todo.release})
    owned.note_directories(changes, record)
    owned.save(path, record)
    owned.apply(module, changes, record, {})
    for word, names in (("hold", todo.hold), ("unhold", todo.release)):
        if names:
            module.run_command(["apt-mark", word, *names], check_rc=True)
    record["held"] = todo.held
    owned.save(path, record)


def main() -> None:
    spec = {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "packages": {"type": "list", "elements": "str", "default": []},
        "automatic_upgrades": {"type": "bool", "default": True},
        "only_on": {"type": "list", "elements": "path", "default": []},
        "record": {"type": "path", "default": "/var/lib/hpcai/package_hold.json"},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        result = bring(module)
    except (FileError, OSError, owned.RecordError) as exc:
        module.fail_json(msg=f"Cannot hold packages: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
