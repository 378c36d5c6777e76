#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ddp_node_info
short_description: Ask a node what decides whether it can train without a scheduler
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Reads PyTorch's version, GPUs, files, names, a port, and the jobs that Slurm has on the node, as the calling user.
  - Judges nothing; the filter P(hpcai.gpu_cluster.ddp_findings#filter) compares what several nodes say.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  python: {type: path, required: true, description: Interpreter that can import torch.}
  script: {type: path, description: Script whose content is compared between nodes.}
  paths: {type: list, elements: path, default: [], description: Further files and directories that must be readable.}
  addresses: {type: list, elements: str, default: [], description: Names that must resolve.}
  port: {type: int, default: 29400, description: Port that the rendezvous would listen on.}
"""

EXAMPLES = r"""
- name: Ask every node
  hpcai.gpu_cluster.ddp_node_info:
    python: /shared/pytorch/current/bin/python
    script: /shared/train.py
    addresses: "{{ ansible_play_hosts }}"
  register: node
"""

RETURN = r"""
node:
  description: What the node says of itself. C(torch) is empty where it cannot be imported; C(torch_problem) says why.
  returned: success
  type: dict
  sample: {torch: 2.9.0, torch_problem: "", python: /shared/bin/python, hostname: c1, user: trainer, cpus: 96, gpus: 8,
    missing: [], script_sha256: 0123abcd, unresolved: [], port: 29400, port_free: true, jobs: [], jobs_problem: ""}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.jobs.ddp_facts import facts


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "path", "required": True},
            "script": {"type": "path"},
            "paths": {"type": "list", "elements": "path", "default": []},
            "addresses": {"type": "list", "elements": "str", "default": []},
            "port": {"type": "int", "default": 29400},
        },
        supports_check_mode=True,
    )

    def run(argv: list[str]) -> tuple[int, str, str]:
        # A program that is not there is an answer too.
        try:
            return module.run_command(argv, handle_exceptions=False)
        except OSError as exc:
            return 127, "", str(exc)

    module.exit_json(changed=False, node=facts(module.params, run, module.get_bin_path("squeue")))


if __name__ == "__main__":
    main()
