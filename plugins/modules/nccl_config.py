#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_config
short_description: Configure NCCL on a node, with its topology file, also for containers
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Keeps a block of variables at the end of V(/etc/nccl.conf). NCCL takes the first of two lines for a variable, and
    the environment of a job before both. What others wrote into the file therefore stays and takes precedence, and a
    difference is one of RV(findings).
  - Uses the topology file of the image, or generates one from the SKU profile.
  - Mounts both files into every Enroot container.
  - On Azure's HPC images, where the service C(sku-customizations) writes V(/etc/nccl.conf) anew at every boot, a
    drop-in of that service adds the block again.
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
      - V(absent) removes what the module wrote. What others wrote into V(/etc/nccl.conf) stays.
    type: str
    choices: [present, absent]
    default: present
  variables:
    description:
      - Variables of NCCL for every job on this node. One that is null is left out, and so are E(NCCL_TOPO_FILE) and
        E(NCCL_GRAPH_FILE) if their file does not exist, which is a finding.
      - A value is one line of at most 1023 characters.
    type: dict
    default: {}
  topology_file:
    description:
      - Topology file of the machine type, for E(NCCL_TOPO_FILE). A file that somebody else wrote is used as it is. One
        that does not exist is generated from O(machine), and removed with O(state=absent).
      - Without it E(NCCL_TOPO_FILE) is set only by O(variables).
    type: path
  machine:
    description:
      - SKU profile (lookup P(hpcai.gpu_cluster.sku_profile#lookup)) to generate O(topology_file) from. If the profile
        does not describe the topology, a missing file is a finding, and E(NCCL_TOPO_FILE) is not set.
    type: dict
    default: {}
  containers:
    description:
      - Whether Enroot mounts V(/etc/nccl.conf) and the topology file into containers.
    type: bool
    default: true
  record:
    description:
      - File that keeps which files and directories the module created, for O(state=absent).
    type: path
    default: /var/lib/hpcai/nccl_config.json
notes:
  - The module needs root privileges.
  - If V(/etc/nccl.conf) is a symbolic link, it stays as it is, which is a finding.
seealso:
  - module: hpcai.gpu_cluster.node_tuning
  - module: hpcai.gpu_cluster.nccl_tests
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
"""
EXAMPLES = r"""
- name: Configure NCCL for every job on an ND96isr_H100_v5
  hpcai.gpu_cluster.nccl_config:
    variables: "{{ sku.nccl.conf }}"
    topology_file: "{{ sku.nccl.topology_file }}"
    machine: "{{ sku }}"
  vars:
    sku: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96isr_H100_v5') }}"
  become: true

- name: Set one variable on the host, without containers
  hpcai.gpu_cluster.nccl_config:
    variables:
      NCCL_SOCKET_IFNAME: eth0
    containers: false
  become: true

- name: Remove the block from nccl.conf, and a generated topology file
  hpcai.gpu_cluster.nccl_config:
    state: absent
  become: true
"""
RETURN = r"""
findings:
  description: What a person should know.
  type: list
  elements: dict
  returned: success
  contains:
    level:
      description: V(error), V(warn) or V(info).
      type: str
    about:
      description: Variable or file that it is about.
      type: str
    text:
      description: The finding as a sentence.
      type: str
  sample:
    - level: warn
      about: NCCL_DEBUG
      text: "NCCL_DEBUG: /etc/nccl.conf says INFO, which stays; the role's WARN is not set"
files:
  description: Files that changed, or in check mode would change.
  type: list
  elements: str
  returned: success
  sample: [/etc/nccl.conf, /etc/enroot/mounts.d/60-hpcai-nccl.fstab]
topology_file:
  description: Topology file in use, null if there is none.
  type: str
  returned: success
  sample: /opt/microsoft/ndv5-topo.xml
variables:
  description: What NCCL reads from V(/etc/nccl.conf), whoever wrote it.
  type: dict
  returned: success
  sample: {NCCL_IB_PCI_RELAXED_ORDERING: "1", NCCL_TOPO_FILE: /opt/microsoft/ndv5-topo.xml}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import FileError, RecordError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.config import NcclConfError, perform

SPEC = {
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "variables": {"type": "dict", "default": {}},
    "topology_file": {"type": "path"},
    "machine": {"type": "dict", "default": {}},
    "containers": {"type": "bool", "default": True},
    "record": {"type": "path", "default": "/var/lib/hpcai/nccl_config.json"},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module, module.params)
    except (FileError, NcclConfError, OSError, RecordError) as exc:
        module.fail_json(msg=f"Cannot configure NCCL: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
