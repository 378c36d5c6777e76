#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Instances of Google Compute Engine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: google_instances
short_description: Create instances of a cluster on Google Compute Engine in bulk, or delete them
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Calls C(gcloud) on the host on which it runs, with the account that is logged in there.
  - Every instance gets the label C(hpcai-cluster), and metadata C(hpcai-instances) with the names of all instances of
    the request. Instances without the label of the cluster are never touched. One with the label whose metadata does
    not name it, such as somebody's copy of an instance, is never deleted.
  - An instance that exists is left as it is, in whatever state, and is not compared with O(machine). Delete it first to
    have another one.
  - Instances are created in bulk. When Google has room for some of them only, those stay and the module fails for the
    others.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
requirements:
  - gcloud
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  project:
    description:
      - ID of the Google Cloud project.
    type: str
    required: true
  zone:
    description:
      - Zone of the instances, such as V(us-central1-b). Instances of the cluster in other zones are not seen.
    type: str
    required: true
  cluster:
    description:
      - Name of the cluster, which is the value of the label C(hpcai-cluster).
    type: str
    required: true
  names:
    description:
      - Names of the instances. Required by O(state=present). With O(state=absent) an empty list means all instances of
        the cluster in the zone; those that may be copies of them are left, with a warning.
    type: list
    elements: str
    default: []
  machine:
    description:
      - Kind of the instances. Required by O(state=present); other keys than these are refused.
      - C(machine_type), required, such as V(a2-highgpu-8g).
      - C(image) or C(image_family), exactly one of which is required, and C(image_project), the project that has it.
      - C(boot_disk_gb), the size of the boot disk in GB, and C(boot_disk_type). Without them Google chooses.
      - C(subnet), and C(address), whether the instances get a public address, which they do not by default.
      - C(service_account) with the list C(scopes), the list of network C(tags), and the dictionaries C(labels) and
        C(metadata).
      - C(accelerator), a dictionary of C(type) and C(count). Such instances are terminated for maintenance of their
        host, as they cannot be migrated.
      - C(spot), whether they are Spot VMs, which are deleted when Google takes them back.
      - Machine types that come with their GPUs (A2, A3, A4, G2, G4) need no C(accelerator). They are terminated for
        maintenance as well, and get the network card C(GVNIC) unless C(nic_type) is another one, such as
        C(VIRTIO_NET).
      - C(more_subnets), a list of subnets, one for each further network interface.
      - C(resource_policies), a list of policies in the region of the instances, such as a compact placement.
      - C(reservation), the name of a reservation that the instances are taken from, and from nothing else.
      - C(local_ssds), the number of local NVMe disks of 375 GB, where the machine type does not bring its own.
    type: dict
    default: {}
  startup_script:
    description:
      - Path, on the host on which the module runs, of a script that the instances run at every boot.
    type: path
  state:
    description:
      - V(present) creates the instances that do not exist, V(absent) deletes those that exist.
    type: str
    choices:
      - present
      - absent
    default: present
  gcloud:
    description:
      - Name or path of the program C(gcloud).
    type: str
    default: gcloud
seealso:
  - module: hpcai.gpu_cluster.google_resource
"""
EXAMPLES = r"""
- name: Create controller and login node
  hpcai.gpu_cluster.google_instances:
    project: example-1
    zone: us-central1-b
    cluster: train
    names:
      - train-controller
      - train-login
    machine:
      machine_type: n2-standard-4
      image_family: debian-12
      image_project: debian-cloud
      boot_disk_gb: 50
      subnet: train
      tags:
        - train
  register: machines

- name: Create two Spot instances with eight A100 each
  hpcai.gpu_cluster.google_instances:
    project: example-1
    zone: us-central1-b
    cluster: train
    names:
      - train-gpu-1
      - train-gpu-2
    machine:
      machine_type: a2-highgpu-8g
      image: train-gpu-20261101
      boot_disk_gb: 200
      boot_disk_type: pd-ssd
      subnet: train
      resource_policies:
        - train-compact
      spot: true
    startup_script: files/startup.sh

- name: Delete every instance of the cluster in the zone
  hpcai.gpu_cluster.google_instances:
    project: example-1
    zone: us-central1-b
    cluster: train
    state: absent
"""
RETURN = r"""
instances:
  description:
    - Those of O(names) that exist after the task, in check mode those that exist now.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description:
        - Name of the instance.
      returned: always
      type: str
      sample: train-login
    state:
      description:
        - V(starting), V(running), V(stopping) or V(stopped).
      returned: always
      type: str
      sample: running
    address:
      description:
        - Internal address of the first network interface, empty when it has none yet.
      returned: always
      type: str
      sample: 10.0.0.3
    public_address:
      description:
        - Public address of the first network interface, empty when it has none.
      returned: always
      type: str
      sample: ""
created:
  description:
    - Names of the instances that were created, in check mode of those that would be.
  returned: success
  type: list
  elements: str
  sample: [train-controller, train-login]
deleted:
  description:
    - Names of the instances that were deleted, in check mode of those that would be.
  returned: success
  type: list
  elements: str
  sample: []
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.google import google
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.google.google import Gcloud, GcloudError

SPEC: dict[str, dict[str, t.Any]] = {
    "project": {"type": "str", "required": True},
    "zone": {"type": "str", "required": True},
    "cluster": {"type": "str", "required": True},
    "names": {"type": "list", "elements": "str", "default": []},
    "machine": {"type": "dict", "default": {}},
    "startup_script": {"type": "path"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "gcloud": {"type": "str", "default": "gcloud"},
}


def perform(params: t.Mapping[str, t.Any], program: str, check_mode: bool) -> dict[str, t.Any]:
    """Do what is needed; return what the module returns."""
    compute = google.Instances(Gcloud(params["project"], program), params["cluster"], params["zone"])
    present = params["state"] == "present"
    wrong = google.instance_faults(params["machine"]) if present else []
    if wrong:
        raise GcloudError("; ".join(wrong))
    before = compute.listed()
    copies = {name: why for name, item in before.items() for why in [google.unproven(item, compute.zone)] if why}
    names = params["names"] if present else params["names"] or sorted(set(before) - set(copies))
    kept = [f"{name} has the label of {compute.cluster}, and {why}" for name, why in copies.items()]
    warnings = [] if present or params["names"] else sorted(kept)
    refused = [f"{name}: {copies[name]}" for name in names if name in copies and not present]
    if refused:
        raise GcloudError("; ".join(refused))
    todo = [name for name in names if (name in before) != present]
    script = params["startup_script"] or ""
    if todo and not check_mode:
        outcomes = compute.create(todo, params["machine"], script) if present else compute.delete(todo)
        failed = [f"{name}: {why}" for name, why in outcomes.items() if why]
        if failed:
            raise GcloudError("; ".join(failed))
    after = compute.listed() if todo and not check_mode else before
    described = [google.described(name, item) for name, item in after.items() if name in names]
    key, other = ("created", "deleted") if present else ("deleted", "created")
    return {"changed": bool(todo), key: todo, other: [], "instances": described, "warnings": warnings}


def main() -> None:
    module = AnsibleModule(
        argument_spec=SPEC, required_if=[("state", "present", ["names", "machine"])], supports_check_mode=True
    )
    params = module.params
    program = module.get_bin_path(params["gcloud"], required=True)
    try:
        result = perform(params, program, module.check_mode)
    except GcloudError as exc:
        module.fail_json(msg=f"Instances of {params['cluster']} cannot be {params['state']}: {exc}")
    for text in result.pop("warnings"):
        module.warn(f"Left alone: {text}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
