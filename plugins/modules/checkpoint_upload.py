#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_upload
short_description: Send a training checkpoint to blob storage, whole or not visible at all
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Runs the program that role P(hpcai.gpu_cluster.checkpoint_upload#role) installs, which batch scripts can call as
    well.
  - >-
    Each node sends its files with one azcopy per file, at a rate that the ingress limit of the storage account allows
    to all nodes together. A file that the account has already, by size and MD5, is not sent again, so that an
    interrupted upload goes on with the next file.
  - >-
    The last blob is C(MANIFEST.json) with the size, MD5 and SHA-256 of every file. A checkpoint without it is
    incomplete.
  - >-
    Refused are a directory in which somebody still writes, links and devices in it, and a name under which the account
    has another complete checkpoint.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: >-
      The files are hashed and the account is listed, with O(nodes) above 0 on nodes that Slurm allocates for it. While
      O(program) is not installed yet, a change is reported without either.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  source:
    description:
      - >-
        Directory of the checkpoint as an absolute path, on every node that sends. Its files must have been left alone
        for as long as the settings demand (C(settle), 60 seconds by default).
      - With the setting C(layout=shared) all nodes see the same files and divide them, with V(local) each has its own.
    type: path
    required: true
  name:
    description:
      - >-
        Name of the checkpoint below the destination of the settings, such as V(run-7/step-1000). It becomes part of the
        URL of every blob.
    type: str
    required: true
  program:
    description:
      - The program C(checkpoint_upload), on a directory that the nodes share.
      - It keeps what nodes tell each other in a directory of the user, C(user-UID) in the directory C(state_dir) of
        O(config). Where somebody else has taken that name it uses another one, with a warning.
    type: path
    required: true
  config:
    description:
      - Its settings, a JSON file that role P(hpcai.gpu_cluster.checkpoint_upload#role) writes. It is refused unless it
        belongs to root, to the owner of O(program) or to the user of the task, in directories that nobody else can
        change; so is the azcopy that it names.
    type: path
    required: true
  nodes:
    description:
      - Number of nodes that send, as tasks of C(srun), one a node. V(0) sends from this host without Slurm.
    type: int
    default: 0
  srun_options:
    description:
      - >-
        Long options of C(srun). Underscores become dashes, V(true) is a bare flag, V(false) leaves an option out, and a
        list repeats it. Quote times.
      - >-
        A value replaces the default, under which nodes are allocated whole. Name the nodes with C(nodelist) where each
        has its own files.
    type: dict
    default: {exclusive: true}
  replace:
    description:
      - >-
        Allow to change a checkpoint of this name that is complete. Its C(MANIFEST.json) is removed before the first
        file changes, so that nobody takes a mixture for a checkpoint.
    type: bool
    default: false
  timeout:
    description:
      - >-
        Seconds that one step of all nodes may take, the wait for the nodes included. The steps are sending and writing
        the manifest, with O(replace) also comparing and removing the manifest before. All of them are ended after three
        times this.
    type: float
    default: 86400
seealso:
  - module: hpcai.gpu_cluster.checkpoint_tools
  - plugin: hpcai.gpu_cluster.azcopy_plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Upload a checkpoint from this host
  hpcai.gpu_cluster.checkpoint_upload:
    source: /shared/checkpoints/step-1000
    name: run-7/step-1000
    program: /shared/checkpoint_upload/bin/checkpoint_upload
    config: /shared/checkpoint_upload/config.json
  become: true
  become_user: trainer

- name: Upload a checkpoint from four whole nodes
  hpcai.gpu_cluster.checkpoint_upload:
    source: /shared/checkpoints/step-2000
    name: run-7/step-2000
    program: /shared/checkpoint_upload/bin/checkpoint_upload
    config: /shared/checkpoint_upload/config.json
    nodes: 4
    srun_options:
      exclusive: true
      partition: gpu
      time: "02:00:00"
  become: true
  become_user: trainer

- name: Upload the shards that two nodes have on their own scratch
  hpcai.gpu_cluster.checkpoint_upload:
    source: /scratch/checkpoints/step-3000
    name: run-7/step-3000
    program: /shared/checkpoint_upload/bin/checkpoint_upload
    config: /shared/checkpoint_upload/config-local.json # with layout local
    nodes: 2
    srun_options:
      exclusive: true
      nodelist: c[3-4]
  become: true
  become_user: trainer

- name: Replace a checkpoint that was evaluated and found wrong
  hpcai.gpu_cluster.checkpoint_upload:
    source: /shared/checkpoints/step-1000
    name: run-7/step-1000
    program: /shared/checkpoint_upload/bin/checkpoint_upload
    config: /shared/checkpoint_upload/config.json
    replace: true
  become: true
  become_user: trainer
"""

RETURN = r"""
upload:
  description:
    - What was sent, or would be in check mode.
  returned: success
  type: dict
  contains:
    sent:
      description:
        - Names of the files that were sent, or would be in check mode, sorted. Empty when the account had all of them.
      returned: always
      type: list
      elements: str
      sample: [rank0.pt]
    nodes:
      description:
        - By the name of the node, how many files it sent (C(sent)) and how many the account had already (C(kept)).
      returned: unless O(program) is not there in check mode
      type: dict
      sample:
        c1:
          sent: 1
          kept: 3
    plan:
      description:
        - >-
          Rates and concurrency of the copies, as the filter P(hpcai.gpu_cluster.azcopy_plan#filter) returns them, in
          Mb/s. It is that of the first node.
      returned: unless O(program) is not there in check mode
      type: dict
      sample:
        cap_mbps: 2300
        concurrency: 10
        copies_per_node: 8
        nodes: 1
        total_mbps: 18400
    files:
      description:
        - Number of files of the checkpoint.
      returned: not in check mode
      type: int
      sample: 4
    bytes:
      description:
        - Size of all its files in bytes.
      returned: not in check mode
      type: int
      sample: 1048576
    stray:
      description:
        - Names of blobs that lie among the files of the checkpoint and do not belong to it. They are left alone.
      returned: not in check mode
      type: list
      elements: str
      sample: []
"""

import json
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _process
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import flags
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import CheckpointError

SPEC = {
    "source": {"type": "path", "required": True},
    "name": {"type": "str", "required": True},
    "program": {"type": "path", "required": True},
    "config": {"type": "path", "required": True},
    "nodes": {"type": "int", "default": 0},
    "srun_options": {"type": "dict", "default": {"exclusive": True}},
    "replace": {"type": "bool", "default": False},
    "timeout": {"type": "float", "default": 86400},
}


def command(params: t.Mapping[str, t.Any], check_mode: bool) -> list[str]:
    """Return the command line of the program that uploads."""
    argv = [params["program"], "run", params["source"], params["name"], "--config", params["config"]]
    argv += [f"--nodes={params['nodes']}", f"--timeout={params['timeout']:g}"]
    argv += [f"--srun={flag}" for flag in flags({k.replace("_", "-"): v for k, v in params["srun_options"].items()})]
    return argv + ["--replace"] * params["replace"] + ["--dry-run"] * check_mode


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Upload by the program, which answers in one line of JSON."""
    params = module.params
    if module.check_mode and not Path(params["program"]).exists():
        # An earlier task of the play would have made it.
        return {"changed": True, "upload": {"sent": []}}
    done = _process.run(command(params, module.check_mode), params["timeout"] * 3)
    try:
        answer: dict[str, t.Any] = json.loads(done.out.splitlines()[-1])
        failed, changed = answer.pop("failed"), answer.pop("changed", False)
    except (ValueError, IndexError, KeyError, AttributeError) as exc:
        raise CheckpointError(f"{params['program']} gave no answer: {done.problem}") from exc
    for warning in answer.pop("warnings", []):
        module.warn(warning)
    if failed:
        raise CheckpointError(failed)
    upload = {key: value for key, value in answer.items() if key not in ("step", "node", "index")}
    diff = {"before": "", "after": "".join(f"{name}\n" for name in upload["sent"])}
    return {"changed": changed, "upload": upload, "diff": diff}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module)
    except CheckpointError as exc:
        source, name = module.params["source"], module.params["name"]
        module.fail_json(msg=f"Checkpoint {source} is not uploaded as {name}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
