#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_topology_info
short_description: Find out which switches nodes are on, for Slurm's topology
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Returns the switches of the network as a tree, as the roles take it for C(topology.conf) (C(slurm_topology)) and
    M(hpcai.gpu_cluster.certification) for leaves. It changes nothing.
  - With O(source=infiniband) a fat tree becomes a tree as follows. Nodes that are on the same leaf switches are on one
    leaf, which has the name of the first of these switches; so nodes with eight adapters on the leaf switches of eight
    rails are on one leaf together with those that are on the same eight. Above that, what is connected through the
    switches of a level is one switch, which has the name of the first of that level. Switches that have no node of
    O(nodes) below them are left out, and levels that join nothing.
  - A node that lacks a link which all others of its leaf have stays with them, and RV(findings) says so.
  - Every node of O(nodes) is on a switch of the result. One that was not found stays on the leaf that O(present) has it
    on, else it is on the switch C(unplaced); RV(missing) and RV(findings) name it.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details:
      - The module only reads, in check mode as well.
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  source:
    description:
      - Who says where nodes are. V(infiniband) is C(ibnetdiscover), V(hosts) is O(hosts).
      - V(google) is C(gcloud compute instances list --format=json) and V(aws) is
        C(aws ec2 describe-instance-topology), whose output has to be in O(text).
    type: str
    choices: [hosts, infiniband, google, aws]
    required: true
  nodes:
    description:
      - All nodes of the cluster, as names or hostlists. What is found of other machines is not used.
    type: list
    elements: str
    required: true
  text:
    description:
      - Output of the command of O(source), for example of an earlier time or another machine. With
        V(infiniband) and without it C(ibnetdiscover) is run on this host.
    type: str
    default: ""
  hosts:
    description:
      - Place of each node by its name in Slurm, from the top of the network down, such as V(pod1/leaf3) or just
        V(leaf3). Used with O(source=hosts). A name that is not in O(nodes) is an error.
    type: dict
    default: {}
  names:
    description:
      - Names in Slurm by what O(source) calls machines, where that differs. With V(infiniband) the key is the first
        word of an adapter's node description, which is its host name, or the whole description, or the GUID of the
        adapter (C(node_guid)). With V(google) it is the name or the id of an instance, with V(aws) its id.
      - A host name with a domain is a node of the name before the first dot, and needs no entry.
    type: dict
    default: {}
  joined:
    description:
      - Whether parts of the network that nothing joins get one more switch above them, C(top), so that jobs may span
        them. By default that is so but for V(infiniband), where such parts cannot reach each other.
    type: bool
  present:
    description:
      - Text of the present C(topology.conf), or of a C(topology.yaml) that role slurm wrote, from which nodes that are
        not found keep their leaf.
    type: str
    default: ""
  ibnetdiscover:
    description:
      - Path of C(ibnetdiscover), of the package infiniband-diags. By default E(PATH) and V(/usr/sbin) are searched. It
        needs root.
    type: path
  timeout:
    description:
      - Seconds for C(ibnetdiscover).
    type: float
    default: 300
notes:
  - In a virtual machine of a cloud C(ibnetdiscover) does not see the fabric, which is the provider's own.
  - What a node is called in the fabric is what its own root says, as is its host name in Slurm.
seealso:
  - module: hpcai.gpu_cluster.slurm_config
  - module: hpcai.gpu_cluster.certification
  - plugin: hpcai.gpu_cluster.slurm_topology_lines
    plugin_type: filter
  - name: Topology guide
    description: What Slurm does with it.
    link: https://slurm.schedmd.com/topology.html
"""

EXAMPLES = r"""
- name: Read which leaf switches the nodes are on
  hpcai.gpu_cluster.slurm_topology_info:
    source: infiniband
    nodes: ["dgx[001-032]"]
  become: true
  register: network

- name: Draw the tree from an earlier output, with adapters that have lost their names
  hpcai.gpu_cluster.slurm_topology_info:
    source: infiniband
    nodes: ["node[001-047]", "gpu[001-045]"]
    text: "{{ lookup('ansible.builtin.file', 'ibnetdiscover.txt', rstrip=false) }}"
    names:
      "0x506b4b030043fa96": node021

- name: Name the blocks of Google's instances
  hpcai.gpu_cluster.slurm_topology_info:
    source: google
    nodes: ["a3-[0-15]"]
    text: "{{ lookup('ansible.builtin.file', 'instances.json') }}"
"""

RETURN = r"""
switches:
  description:
    - The tree, leaves first, each child before its parent. An entry has C(name), and either C(nodes) or C(switches).
  type: list
  elements: dict
  returned: success
  sample:
    - {name: leaf1, nodes: [c1, c2]}
    - {name: leaf2, nodes: [c3, c4]}
    - {name: spine1, switches: [leaf1, leaf2]}
leaves:
  description: Leaf and the switch above it (C(pod), empty where there is none) of each node.
  type: dict
  returned: success
  sample: {c1: {leaf: leaf1, pod: spine1}}
missing:
  description: Nodes that were not found.
  type: list
  elements: str
  returned: success
  sample: [c9]
findings:
  description: What a person has to know about the tree, one sentence each. They are warnings, too.
  type: list
  elements: str
  returned: success
  sample: ["c3: no link to leaf7, where its neighbours have one (7 of 8 leaves)"]
"""

import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.fabric import module as topology

SPEC = {
    "source": {"type": "str", "choices": list(topology.SOURCES), "required": True},
    "nodes": {"type": "list", "elements": "str", "required": True},
    "text": {"type": "str", "default": ""},
    "hosts": {"type": "dict", "default": {}},
    "names": {"type": "dict", "default": {}},
    "joined": {"type": "bool"},
    "present": {"type": "str", "default": ""},
    "ibnetdiscover": {"type": "path"},
    "timeout": {"type": "float", "default": 300.0},
}


def discovered(module: AnsibleModule) -> str:
    """Return what ibnetdiscover says of the fabric that this host is on."""
    program = module.params["ibnetdiscover"] or module.get_bin_path("ibnetdiscover", opt_dirs=["/usr/sbin", "/sbin"])
    if not program:
        module.fail_json(
            msg="Cannot read the InfiniBand fabric: there is no ibnetdiscover on this host. Install infiniband-diags,"
            " or give its output as text"
        )
    outcome = _process.run([program], module.params["timeout"])
    if outcome.problem:
        module.fail_json(
            msg=f"Cannot read the InfiniBand fabric: {program}: {outcome.problem}. It needs root, and an InfiniBand"
            " port that is up, of a machine and not of a cloud's virtual machine"
        )
    return outcome.out


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Say which switches the nodes are on, and what topology.conf or topology.yaml of them would be."""
    text = module.params["text"]
    if module.params["source"] == "infiniband" and not text:
        text = discovered(module)
    return topology.perform(module.params, text, module.params["present"])


def main() -> None:
    module = AnsibleModule(
        argument_spec=SPEC,
        required_if=[("source", "hosts", ["hosts"]), ("source", "google", ["text"]), ("source", "aws", ["text"])],
        supports_check_mode=True,
    )
    try:
        result = perform(module)
    except ValueError as exc:
        source = module.params["source"]
        module.fail_json(msg=f"Cannot tell from {source} which switches the nodes are on: {exc}")
    for finding in result["findings"]:
        module.warn(finding)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
