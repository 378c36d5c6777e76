#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_upload
short_description: Send a training checkpoint to blob storage, completely or not visibly at all
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Starts the program that the role P(hpcai.gpu_cluster.checkpoint_upload#role) installs, which batch scripts use too.
  - Each node sends its files by one azcopy per file, as fast as the account takes them from all nodes together. What
    the account has already, by size and MD5, is not sent again, so an interrupted upload goes on with its next file.
  - The last blob is C(MANIFEST.json), with size, MD5 and SHA-256 of every file. Without it a checkpoint is incomplete.
  - A checkpoint with files that somebody still writes is refused, and so is another one of a name that is taken.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  source: {description: Directory of the checkpoint., type: path, required: true}
  name: {description: Name of the checkpoint below the destination of the settings., type: str, required: true}
  program: {description: The program., type: path, required: true}
  config: {description: Its settings., type: path, required: true}
  nodes:
    description:
      - Number of nodes that send, through Slurm. V(0) sends from this host without Slurm.
    type: int
    default: 0
  srun_options:
    description:
      - Long options of C(srun); underscores become dashes, V(true) is a bare flag. Quote times.
      - Without it the nodes are taken whole. Name the nodes with C(nodelist) where each has its own files.
    type: dict
    default: {exclusive: true}
  replace: {description: Change a checkpoint of this name that is complete., type: bool, default: false}
  timeout: {description: Seconds for the upload., type: float, default: 86400}
"""

EXAMPLES = r"""
- name: Upload from four nodes
  hpcai.gpu_cluster.checkpoint_upload:
    source: /shared/checkpoints/step-1000
    name: run-7/step-1000
    program: /shared/checkpoint_upload/bin/checkpoint_upload
    config: /shared/checkpoint_upload/config.json
    nodes: 4
  become: true
  become_user: trainer
"""

RETURN = r"""
upload:
  description: C(sent) and C(stray) are names, C(plan) is what the filter azcopy_plan says. Others are counts.
  returned: success
  type: dict
  sample:
    {sent: [rank0.pt], nodes: {c1: {sent: 1, kept: 3}}, files: 4, bytes: 1048576, stray: [],
     plan: {cap_mbps: 2300, concurrency: 10, copies_per_node: 8, nodes: 1, total_mbps: 18400}}
"""

import json
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch_argv import flags


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "program": {"type": "path", "required": True},
            "config": {"type": "path", "required": True},
            "nodes": {"type": "int", "default": 0},
            "srun_options": {"type": "dict", "default": {"exclusive": True}},
            "replace": {"type": "bool", "default": False},
            "timeout": {"type": "float", "default": 86400},
        },
        supports_check_mode=True,
    )
    params = module.params
    argv = [params["program"], "run", params["source"], params["name"], "--config", params["config"]]
    argv += [f"--nodes={params['nodes']}", f"--timeout={params['timeout']:g}"]
    argv += [f"--srun={flag}" for flag in flags({k.replace("_", "-"): v for k, v in params["srun_options"].items()})]
    argv += ["--replace"] * params["replace"] + ["--dry-run"] * module.check_mode
    if module.check_mode and not Path(params["program"]).exists():
        # An earlier task of the play would have made it.
        module.exit_json(changed=True, upload={"sent": []})
    done = _command.run(argv, params["timeout"] * 3)
    try:
        answer: dict[str, t.Any] = json.loads(done.out.splitlines()[-1])
        failed, changed = answer.pop("failed"), answer.pop("changed", False)
    except (ValueError, IndexError, KeyError, AttributeError):
        module.fail_json(msg=f"{params['program']} gave no answer for {params['source']}: {done.problem}")
    if failed:
        module.fail_json(msg=f"Checkpoint {params['source']} is not uploaded as {params['name']}: {failed}")
    upload = {key: value for key, value in answer.items() if key not in ("step", "node", "index")}
    diff = {"before": "", "after": "".join(f"{name}\n" for name in upload["sent"])}
    module.exit_json(changed=changed, upload=upload, diff=diff)


if __name__ == "__main__":
    main()
