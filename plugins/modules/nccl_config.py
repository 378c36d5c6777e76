#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_config
short_description: NCCL's configuration of a node, merged, with its topology file, also for containers
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Keeps a block of variables at the end of C(/etc/nccl.conf). Of two lines for a variable NCCL takes the first, and
    the environment of a job before both. So what somebody else wrote into the file stays and wins; a difference is one
    of the RV(findings).
  - Uses the topology file that is there, or makes it from the machine type's profile.
  - Shows both files in every enroot container.
  - On Azure's HPC images, where the service C(sku-customizations) writes the file anew at every boot, a drop-in of that
    service brings the block back.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  state:
    {type: str, choices: [present, absent], default: present, description: V(absent) removes what the module wrote.}
  variables: {type: dict, default: {}, description: "What NCCL shall find in the file, for every job on this node."}
  topology_file:
    {type: path, description: "Topology file of the machine type, for E(NCCL_TOPO_FILE)."}
  machine:
    type: dict
    default: {}
    description: Profile of the machine type (lookup P(hpcai.gpu_cluster.sku_profile#lookup)); a missing topology file
      is made from it.
  containers: {type: bool, default: true, description: Whether enroot shows the files in containers.}
  record: {type: path, default: /var/lib/hpcai/nccl_config.json, description: What the module made.}
"""
EXAMPLES = r"""
- name: Configure NCCL for every job on this node
  hpcai.gpu_cluster.nccl_config:
    variables: {NCCL_IB_PCI_RELAXED_ORDERING: "1"}
    topology_file: /opt/microsoft/ndv5-topo.xml
    machine: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'ND96isr_H100_v5') }}"
"""
RETURN = r"""
findings:
  description: What somebody should know. C(level) is error, warn or info.
  type: list
  elements: dict
  returned: success
  sample: [{level: warn, about: NCCL_DEBUG, text: "NCCL_DEBUG: /etc/nccl.conf says INFO, which stays"}]
files: {description: Files that changed., type: list, elements: str, returned: success, sample: [/etc/nccl.conf]}
topology_file: {description: The topology file in use., type: str, returned: success, sample: /opt/microsoft/x.xml}
variables:
  description: What NCCL finds in the file, whoever wrote it.
  type: dict
  returned: success
  sample: {NCCL_IB_PCI_RELAXED_ORDERING: "1", NCCL_TOPO_FILE: /opt/microsoft/ndv5-topo.xml}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._managed_file import FileError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import RecordError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.conf import NcclError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.config_task import perform


def main() -> None:
    spec = {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "variables": {"type": "dict", "default": {}},
        "topology_file": {"type": "path"},
        "machine": {"type": "dict", "default": {}},
        "containers": {"type": "bool", "default": True},
        "record": {"type": "path", "default": "/var/lib/hpcai/nccl_config.json"},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    try:
        result = perform(module, module.params)
    except (FileError, NcclError, OSError, RecordError) as exc:
        module.fail_json(msg=f"Cannot configure NCCL: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
