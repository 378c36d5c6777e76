#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances of Google Compute Engine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: google_instances
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: Create a cluster's instances on Google Cloud in bulk, and delete them
description:
  - Calls C(gcloud) on the host that it runs on, with the account that is logged in there.
  - Every instance gets the label C(hpcai-cluster). What does not carry it is never touched.
  - What is there is left as it is; a machine that shall be another is deleted first.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  project: {description: Google's id of the project., type: str, required: true}
  zone: {description: The zone., type: str, required: true}
  cluster: {description: The cluster that they belong to., type: str, required: true}
  names:
    description: The instances. With O(state=absent), none means all of the cluster.
    type: list
    elements: str
    default: []
  machine:
    description:
      - What they are. C(machine_type); C(image), or C(image_family) with C(image_project); C(boot_disk_gb),
        C(boot_disk_type), C(subnet), C(address) (whether it gets a public one), C(service_account), C(scopes), C(tags),
        C(labels), C(metadata), C(accelerator) (C(type) and C(count)), C(spot).
    type: dict
    default: {}
  startup_script: {description: Path of a script that they run at every boot., type: path}
  state: {description: Whether they shall be there., type: str, choices: [present, absent], default: present}
  gcloud: {description: The program., type: str, default: gcloud}
"""
EXAMPLES = r"""
- name: Create controller and login node
  hpcai.gpu_cluster.google_instances:
    project: example-1
    zone: us-central1-b
    cluster: train
    names: [train-controller, train-login]
    machine: {machine_type: n1-standard-2, image_family: debian-12, image_project: debian-cloud, boot_disk_gb: 50}
"""
RETURN = r"""
instances:
  description: The instances that were asked for and are there.
  returned: success
  type: list
  elements: dict
  sample: [{name: train-login, state: running, address: 10.0.0.3, public_address: ""}]
created: {description: "Instances that were created, or would be.", returned: success, type: list, elements: str}
deleted: {description: "Instances that were deleted, or would be.", returned: success, type: list, elements: str}
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.google import instances as google
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.google.gcloud import Gcloud, GcloudError


def bring(given: t.Mapping[str, t.Any], compute: google.Instances, check: bool) -> dict[str, t.Any]:
    """Do what is needed; return what the module returns."""
    present = given["state"] == "present"
    wrong = google.faults(given["machine"]) if present else []
    if wrong:
        raise GcloudError("; ".join(wrong))
    before = compute.listed()
    wanted = given["names"] if present else given["names"] or sorted(before)
    todo = [name for name in wanted if (name in before) != present]
    script = given["startup_script"] or ""
    if todo and not check:
        said = compute.create(todo, given["machine"], script) if present else compute.delete(todo)
        failed = [f"{name}: {why}" for name, why in said.items() if why]
        if failed:
            raise GcloudError("; ".join(failed))
    after = compute.listed() if todo and not check else before
    found = [google.described(name, item) for name, item in after.items() if name in wanted]
    key, other = ("created", "deleted") if present else ("deleted", "created")
    return {"changed": bool(todo), key: todo, other: [], "instances": found}


def main() -> None:
    text = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            **dict.fromkeys(("project", "zone", "cluster"), text),
            "names": {"type": "list", "elements": "str", "default": []},
            "machine": {"type": "dict", "default": {}},
            "startup_script": {"type": "path"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "gcloud": {"type": "str", "default": "gcloud"},
        },
        required_if=[("state", "present", ["names", "machine"])],
        supports_check_mode=True,
    )
    given = module.params
    gcloud = Gcloud(given["project"], module.get_bin_path(given["gcloud"], required=True))
    try:
        result = bring(given, google.Instances(gcloud, given["cluster"], given["zone"]), module.check_mode)
    except GcloudError as exc:
        module.fail_json(msg=f"Instances of {given['cluster']} cannot be {given['state']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
