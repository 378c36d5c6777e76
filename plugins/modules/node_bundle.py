#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_bundle
short_description: Build the archive with which a node configures itself
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Packs ansible-core, the parts of this collection that C(playbooks/node.yml) needs, and the variables of the node
    into one archive.
  - The same inputs give the same digest on every host. An archive that exists and is intact is not written again.
  - The module runs on the control host and is meant to be used by the role P(hpcai.gpu_cluster.node_bundle#role).
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details:
      - If one of the directories of O(wheels) does not exist yet, all wheels are left out, which changes the digest.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  dest:
    description:
      - Directory for the archive, which is written with mode 0600. It is created if it is absent.
    type: path
    required: true
  collection:
    description:
      - Root directory of this collection.
    type: path
    required: true
  wheels:
    description:
      - Directories with the wheels of ansible-core, one for each Python version that nodes have, as
        M(hpcai.gpu_cluster.python_wheelhouse) makes them.
    type: list
    elements: path
    required: true
  scripts:
    description:
      - Texts of further files by their names. They are put beside the collection, C(bootstrap.sh) executable.
    type: dict
    required: true
  groups:
    description:
      - Inventory groups of the node. C(slurm_compute) must be among them.
    type: list
    elements: str
    required: true
  variables:
    description:
      - Variables of the node. C(cluster_sku) is needed, and unless C(cluster_slurm) is V(cyclecloud) also
        C(cluster_name) and C(slurm_controller_hosts).
      - What looks like a secret is refused, since everybody who has the archive can read it, by its name, such as
        C(JobCompPass) or C(api_tokens), or by itself, such as C(password=) among mount options, a password in a URL, a
        shared access signature or a private key.
    type: dict
    required: true
  inventory:
    description:
      - Variables of the inventory. Of these only those go in that a role or playbook in the archive reads;
        O(variables) take precedence, and all of them go in.
    type: dict
    default: {}
  not_secret:
    description:
      - Paths of variables that look like secrets and are none, as the module's message names them, such as
        V(slurm_node_features[0].key).
    type: list
    elements: str
    default: []
  collections:
    description:
      - Names of other collections to pack.
    type: list
    elements: str
    default: []
  collections_paths:
    description:
      - Directories that are searched first for O(collections). Afterwards those beside the ansible-core that runs the
        module are searched.
    type: list
    elements: path
    default: []
  budget:
    description:
      - Seconds after which a node stops configuring itself, at least 1.
    type: int
    default: 900
seealso:
  - module: hpcai.gpu_cluster.node_bundle_prune
  - module: hpcai.gpu_cluster.python_wheelhouse
"""

EXAMPLES = r"""
- name: Build the bundle of GPU nodes
  hpcai.gpu_cluster.node_bundle:
    dest: ~/.cache/hpcai.gpu_cluster/node_bundle
    collection: "{{ role_path | dirname | dirname }}"
    wheels: ["{{ wheelhouse.path }}"]
    scripts:
      bootstrap.sh: "{{ lookup('ansible.builtin.file', 'bootstrap.sh') }}"
    groups: [slurm_compute, gpu]
    variables:
      cluster_name: a
      cluster_sku: Standard_ND96asr_v4
      slurm_controller_hosts: [ctl]
  delegate_to: localhost
  register: bundle

- name: Build a bundle for a cluster whose Slurm CycleCloud installs
  hpcai.gpu_cluster.node_bundle:
    dest: /srv/bundles
    collection: /usr/share/ansible/collections/ansible_collections/hpcai/gpu_cluster
    wheels: [/srv/wheels/cp310, /srv/wheels/cp312]
    scripts: "{{ node_scripts }}"
    groups: [slurm_compute, gpu]
    variables:
      cluster_slurm: cyclecloud
      cluster_sku: Standard_ND96isr_H100_v5
    collections: [ansible.posix]
    budget: 600
  delegate_to: localhost

- name: Say whether a bundle would be built anew, with a variable that only looks like a secret
  hpcai.gpu_cluster.node_bundle:
    dest: /srv/bundles
    collection: /usr/share/ansible/collections/ansible_collections/hpcai/gpu_cluster
    wheels: [/srv/wheels/cp312]
    scripts: "{{ node_scripts }}"
    groups: [slurm_compute, gpu]
    variables:
      cluster_sku: Standard_ND96isr_H100_v5
      site_token_path: /etc/site/token
    not_secret: [site_token_path]
  delegate_to: localhost
  check_mode: true
"""

RETURN = r"""
path:
  description: Path of the archive.
  type: str
  returned: success
  sample: /home/admin/.cache/hpcai.gpu_cluster/node_bundle/hpcai-node-3f1c52a09b7e.tar.gz
name:
  description: File name of the archive.
  type: str
  returned: success
  sample: hpcai-node-3f1c52a09b7e.tar.gz
folder:
  description: Name of the directory in the archive.
  type: str
  returned: success
  sample: hpcai-node-3f1c52a09b7e
sha256:
  description: SHA-256 of the archive.
  type: str
  returned: success
  sample: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
size:
  description: Size of the archive in bytes.
  type: int
  returned: success
  sample: 9437184
digest:
  description: Digest of the content of the archive.
  type: str
  returned: success
  sample: 3f1c52a09b7e4c53b5c1a5ff2d2d6a2f6ad1f3d9b29f5cf0a6f0dfb0c9f1e2d3
version:
  description: The beginning of RV(digest) as a version of three numbers.
  type: str
  returned: success
  sample: 1.0.1058820768
left_out:
  description: Names of variables in O(inventory) that nothing in the archive reads, and that are not in it.
  type: list
  elements: str
  returned: success
  sample: [cluster_budget_owner, slurm_accounts]
manifest:
  description: What the archive holds.
  type: dict
  returned: success
  contains:
    schema:
      description: Version of the format.
      type: int
      sample: 1
    packages:
      description: Python packages.
      type: list
      elements: str
      sample: [ansible_core-2.19.4, jinja2-3.1.6]
    collections:
      description: Collections.
      type: list
      elements: str
      sample: [hpcai.gpu_cluster]
    roles:
      description: Roles of this collection.
      type: list
      elements: str
      sample: [gpu_clocks, node_tuning, nvme_scratch, slurm_compute]
    groups:
      description: Value of O(groups).
      type: list
      elements: str
      sample: [slurm_compute, gpu]
    budget:
      description: Value of O(budget).
      type: int
      sample: 900
"""

import sys
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.bundle import BundleError, BundleRequest, keep

SPEC = {
    "dest": {"type": "path", "required": True},
    "collection": {"type": "path", "required": True},
    "wheels": {"type": "list", "elements": "path", "required": True},
    "scripts": {"type": "dict", "required": True},
    "groups": {"type": "list", "elements": "str", "required": True},
    "variables": {"type": "dict", "required": True},
    "inventory": {"type": "dict", "default": {}},
    "not_secret": {"type": "list", "elements": "str", "default": [], "no_log": False},
    "collections": {"type": "list", "elements": "str", "default": []},
    "collections_paths": {"type": "list", "elements": "path", "default": []},
    "budget": {"type": "int", "default": 900},
}


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> dict[str, t.Any]:
    """Make the bundle of what is given unless it is there."""
    options = dict(params)
    # Beside the Ansible that runs us are the collections that came with it.
    places = [*options.pop("collections_paths"), *(path for path in sys.path if path.endswith("-packages"))]
    changed, bundle = keep(BundleRequest(places=places, **options), check_mode)
    return {"changed": changed, **bundle}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (BundleError, OSError) as exc:
        module.fail_json(msg=f"No node bundle: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
