#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: certification_joining_info
short_description: Find nodes that join a certified cluster, and proven ones to certify them beside
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - A node joins if Slurm has it and no certificate in O(dir) tells of it, if O(installations) has another one than the
    last certificate that tested it, or if it is held already with a reason that begins with C(hpcai:joining:). It is
    proven if the last certificate that tested it beside others cleared it. It changes nothing.
  - As long as no node is proven nobody joins, as then all nodes are certified beside each other.
  - Nodes that power saving creates (C(CLOUD)) never join, since a job waits for them. Those that somebody drained are
    left as they are.
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
  dir:
    description:
      - Directory of the runs of M(hpcai.gpu_cluster.certification). It may be missing. Runs in it that belong
        neither to root nor to the user of the task do not count.
    type: path
    required: true
  hosts:
    description:
      - Nodes that join although a certificate tells of them, as a hostlist, such as one with another GPU. Then only
        these do.
    type: str
    default: ""
  installations:
    description:
      - Which installation each node is now, by its name, as P(hpcai.gpu_cluster.slurm_installations#filter) returns it.
        Nodes that are missing here, and those whose certificate says nothing of it, are taken for the same as before.
    type: dict
    default: {}
  partition:
    description:
      - Slurm partition whose nodes are looked at. By default the default partition of the cluster.
    type: str
    default: ""
  partners:
    description:
      - Number of proven idle nodes that are chosen where there are so many. More are chosen so that there are 5 nodes
        with the newcomers, as fewer are not compared with each other, and one for each 4 newcomers. Those of the
        newcomers' own leaf switches come first. With fewer than 2 nobody is certified.
    type: int
    default: 3
  topology:
    description:
      - Switches of the network as M(hpcai.gpu_cluster.slurm_topology_info) returns them, where Slurm itself has none.
    type: list
    elements: dict
    default: []
requirements:
  - Slurm client commands on this host
seealso:
  - module: hpcai.gpu_cluster.certification
  - module: hpcai.gpu_cluster.slurm_node
"""

EXAMPLES = r"""
- name: Find nodes that were never certified
  hpcai.gpu_cluster.certification_joining_info:
    dir: /shared/certification
  become: true
  register: joining

- name: Keep jobs from them
  hpcai.gpu_cluster.slurm_node:
    name: "{{ joining.hold }}"
    state: drained
    reason: "{{ joining.reason }}"
    replace: ["Not responding"]
  become: true
  when: joining.hold | length > 0

- name: Find those, too, that were installed anew since they were certified
  hpcai.gpu_cluster.certification_joining_info:
    dir: /shared/certification
    installations: "{{ groups['slurm_compute'] | hpcai.gpu_cluster.slurm_installations(hostvars) }}"
  become: true

- name: Choose partners for a node that got another GPU
  hpcai.gpu_cluster.certification_joining_info:
    dir: /shared/certification
    hosts: gpu-017
    partners: 4
  become: true
"""

RETURN = r"""
hold:
  description: Nodes that join and that still get jobs, as a hostlist.
  type: str
  returned: success
  sample: gpu-[065-066]
ready:
  description: Nodes that join and answer, as a hostlist. It is empty where too few proven nodes are idle.
  type: str
  returned: success
  sample: gpu-065
partners:
  description: Proven idle nodes beside which RV(ready) is to be certified, as a hostlist.
  type: str
  returned: success
  sample: gpu-[060-062]
waiting:
  description: Nodes that join and cannot be certified now, as a hostlist. RV(findings) says why.
  type: str
  returned: success
  sample: gpu-066
reason:
  description: Reason with which nodes are held.
  type: str
  returned: success
  sample: "hpcai:joining:not certified beside proven nodes yet"
findings:
  description: What a person has to know, one sentence each.
  type: list
  elements: str
  returned: success
  sample: ["gpu-066: is held, and its jobs have not ended yet"]
"""

import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import joining, journal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import slurm as certify_slurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm import CampaignSlurm
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.fabric.model import leaves
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import compress, expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import TIME_FORMAT

SPEC = {
    "dir": {"type": "path", "required": True},
    "hosts": {"type": "str", "default": ""},
    "installations": {"type": "dict", "default": {}},
    "partition": {"type": "str", "default": ""},
    "partners": {"type": "int", "default": 3},
    "topology": {"type": "list", "elements": "dict", "default": []},
}


def perform(params: t.Mapping[str, t.Any], slurm: CampaignSlurm) -> dict[str, t.Any]:
    """Read the cluster and its certificates, and say which nodes join it."""
    nodes, named = slurm.nodes(), expand(params["hosts"])
    partition = slurm.partition(params["partition"])
    certify_slurm.selected(nodes, named, partition)  # refuses what Slurm does not know
    members = certify_slurm.selected(nodes, [], partition)
    where = certify_slurm.read_places(slurm, leaves(params["topology"]))
    certificates = journal.earlier(Path(params["dir"]), 0)
    again = joining.renewed(certificates, params["installations"])
    plan = joining.plan(members, joining.proven(certificates), where, set(named), params["partners"], again)
    lists = {key: compress(getattr(plan, key), sort=True) for key in ("hold", "ready", "partners", "waiting")}
    return {"reason": joining.REASON, "findings": plan.findings, **lists}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    module.run_command_environ_update = {"SLURM_TIME_FORMAT": TIME_FORMAT, "SLURM_BITSTR_LEN": "0"}

    def run(argv: list[str]) -> tuple[int, str, str]:
        return module.run_command([module.get_bin_path(argv[0], required=True), *argv[1:]])

    try:
        result = perform(module.params, CampaignSlurm(run))
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Cannot tell which nodes join the cluster: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
