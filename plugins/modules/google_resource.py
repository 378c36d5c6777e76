#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cluster needs of Google besides instances."""

from __future__ import annotations

DOCUMENTATION = r"""
module: google_resource
short_description: Manage a network, firewall rule, image, service account or role on Google Cloud
version_added: 0.1.0
author:
  - hpcai.gpu_cluster authors (@hpcai)
description:
  - Calls C(gcloud) on the host on which it runs, with the account that is logged in there.
  - A resource that exists is left as it is, except that C(source-ranges), C(source-tags) and C(target-tags) of a
    firewall rule are changed when O(properties) has other ones.
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
  kind:
    description:
      - Kind of the resource. V(role_binding) gives the member in O(name) a role in the project.
    type: str
    required: true
    choices:
      - network
      - subnet
      - firewall_rule
      - router
      - nat
      - image
      - service_account
      - role_binding
  name:
    description:
      - Name of the resource. For V(service_account) it is the part of its address before the C(@), for
        V(role_binding) the member with its type, such as V(serviceAccount:train@example-1.iam.gserviceaccount.com).
    type: str
    required: true
  properties:
    description:
      - Flags of C(gcloud ... create) for the resource, without their dashes. Lists are joined with commas, V(true) is a
        flag without a value, and V(false) and empty values are left out. Other flags than these are refused.
      - For V(network), C(subnet-mode).
      - For V(subnet), C(network), C(range), C(region), which is required, and C(enable-private-ip-google-access).
      - For V(firewall_rule), C(network), C(direction), C(allow), C(source-ranges), C(source-tags) and C(target-tags).
      - For V(router), C(network) and C(region), which is required.
      - For V(nat), C(router) and C(region), which are required, C(nat-all-subnet-ip-ranges) and
        C(auto-allocate-nat-external-ips).
      - For V(image), C(source-disk), C(source-disk-zone) and C(family). Google refuses the disk of an instance that
        runs.
      - For V(service_account), C(display-name). For V(role_binding), C(role), which is required.
      - What is required here is required by O(state=absent), too.
    type: dict
    default: {}
  state:
    description:
      - V(present) creates the resource when it does not exist, V(absent) deletes it when it does.
    type: str
    choices:
      - present
      - absent
    default: present
  wait:
    description:
      - Seconds for which a command is repeated that names a service account which Google does not know yet. A new
        account, and a role that it was given, become known to the parts of Google one after the other.
    type: int
    default: 300
  gcloud:
    description:
      - Name or path of the program C(gcloud).
    type: str
    default: gcloud
seealso:
  - module: hpcai.gpu_cluster.google_instances
"""
EXAMPLES = r"""
- name: Create the subnet of the cluster
  hpcai.gpu_cluster.google_resource:
    project: example-1
    kind: subnet
    name: train
    properties:
      network: train
      range: 10.0.0.0/20
      region: us-central1
      enable-private-ip-google-access: true

- name: Let the machines of the cluster reach each other
  hpcai.gpu_cluster.google_resource:
    project: example-1
    kind: firewall_rule
    name: train-internal
    properties:
      network: train
      direction: INGRESS
      allow:
        - all
      source-tags:
        - train
      target-tags:
        - train

- name: Let the controller create and delete instances
  hpcai.gpu_cluster.google_resource:
    project: example-1
    kind: role_binding
    name: serviceAccount:train-controller@example-1.iam.gserviceaccount.com
    properties:
      role: roles/compute.instanceAdmin.v1

- name: Make an image of the disk of an instance that is switched off
  hpcai.gpu_cluster.google_resource:
    project: example-1
    kind: image
    name: node-1-0-0
    properties:
      source-disk: bake
      source-disk-zone: us-central1-b
      family: node

- name: Delete the router of the cluster
  hpcai.gpu_cluster.google_resource:
    project: example-1
    kind: router
    name: train
    properties:
      region: us-central1
    state: absent
"""
RETURN = r"""
command:
  description:
    - Arguments of C(gcloud) that changed the resource, in check mode those that would. Empty without a change.
  returned: success
  type: list
  elements: str
  sample:
    - compute
    - firewall-rules
    - create
    - train-internal
    - --network=train
    - --direction=INGRESS
    - --allow=all
    - --source-tags=train
    - --target-tags=train
    - --project=example-1
    - --format=json
    - --quiet
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.google import google
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.google.google import KINDS, WAIT, Gcloud, GcloudError

SPEC: dict[str, dict[str, t.Any]] = {
    "project": {"type": "str", "required": True},
    "kind": {"type": "str", "required": True, "choices": list(KINDS)},
    "name": {"type": "str", "required": True},
    "properties": {"type": "dict", "default": {}},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "gcloud": {"type": "str", "default": "gcloud"},
    "wait": {"type": "int", "default": int(WAIT)},
}


def perform(params: t.Mapping[str, t.Any], program: str, check_mode: bool) -> dict[str, t.Any]:
    """Bring a resource of Google Cloud to its state."""
    parts = params["kind"], params["name"], params["properties"], params["state"]
    return google.perform(Gcloud(params["project"], program), *parts, check_mode, params["wait"])


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params = module.params
    program = module.get_bin_path(params["gcloud"], required=True)
    try:
        result = perform(params, program, module.check_mode)
    except GcloudError as exc:
        module.fail_json(msg=f"{params['kind']} {params['name']} cannot be {params['state']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
