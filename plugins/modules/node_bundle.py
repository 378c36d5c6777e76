#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_bundle
short_description: Build the file with which a node configures itself
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Packs ansible-core, what C(playbooks/node.yml) needs of this collection, and the node's variables into one archive.
  - The same inputs make the same digest on every host. An archive that is there and whole is not written again.
  - Runs on the control host. The role P(hpcai.gpu_cluster.node_bundle#role) is the way to use it.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  dest: {type: path, required: true, description: Directory for the archive.}
  collection: {type: path, required: true, description: Where this collection is.}
  wheels:
    type: list
    elements: path
    required: true
    description: Directories of M(hpcai.gpu_cluster.python_wheelhouse), one for each Python that nodes have.
  scripts: {type: dict, required: true, description: Texts of the files that stand beside the collection.}
  groups: {type: list, elements: str, required: true, description: Groups that the node belongs to.}
  variables: {type: dict, required: true, description: The node's variables. Secrets among them are refused.}
  collections: {type: list, elements: str, default: [], description: Other collections to pack.}
  collections_paths: {type: list, elements: path, default: [], description: Where they are looked for first.}
  budget: {type: int, default: 900, description: Seconds after which a node gives up.}
"""

EXAMPLES = r"""
- name: Have the bundle
  hpcai.gpu_cluster.node_bundle:
    dest: ~/.cache/hpcai.gpu_cluster/node_bundle
    collection: "{{ role_path | dirname | dirname }}"
    wheels: ["{{ wheelhouse.path }}"]
    scripts: {bootstrap.sh: "{{ lookup('ansible.builtin.file', 'bootstrap.sh') }}"}
    groups: [slurm_compute, gpu]
    variables: {cluster_name: a, cluster_sku: Standard_ND96asr_v4, slurm_controller_hosts: [ctl]}
  delegate_to: localhost
"""

RETURN = r"""
path: {type: str, returned: success, description: The archive.}
name: {type: str, returned: success, description: Its file name., sample: hpcai-node-3f1c52a09b7e.tar.gz}
folder: {type: str, returned: success, description: The directory that it unpacks to.}
sha256: {type: str, returned: success, description: Digest of the file.}
size: {type: int, returned: success, description: Its bytes.}
digest: {type: str, returned: success, description: Digest of its content.}
version: {type: str, returned: success, description: The same as three numbers., sample: 1.0.1058820768}
manifest: {type: dict, returned: success, description: What it holds.}
"""

import sys

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.make import BundleError, Wish, keep


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "dest": {"type": "path", "required": True},
            "collection": {"type": "path", "required": True},
            "wheels": {"type": "list", "elements": "path", "required": True},
            "scripts": {"type": "dict", "required": True},
            "groups": {"type": "list", "elements": "str", "required": True},
            "variables": {"type": "dict", "required": True},
            "collections": {"type": "list", "elements": "str", "default": []},
            "collections_paths": {"type": "list", "elements": "path", "default": []},
            "budget": {"type": "int", "default": 900},
        },
        supports_check_mode=True,
    )
    params = dict(module.params)
    # Beside the Ansible that runs us are the collections that came with it.
    places = [*params.pop("collections_paths"), *(path for path in sys.path if path.endswith("-packages"))]
    try:
        changed, bundle = keep(Wish(places=places, **params), module.check_mode)
    except (BundleError, OSError) as exc:
        module.fail_json(msg=f"No node bundle: {exc}")
    module.exit_json(changed=changed, **bundle)


if __name__ == "__main__":
    main()
