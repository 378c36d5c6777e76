#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_staging
short_description: Bring container images to the scratch of every node through Slurm
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Asks all nodes in one Slurm job which images they have, and brings what is missing in a second job over the nodes
    that lack it. Nodes that jobs have all of are left for the next run, as are those out of service; they are named.
  - A node reads or receives a file aside, hashes it on the way, and gives it its name when all of it is on its disk.
    Links move after all nodes were served. A file is not read again while size, times and inode are as they were then.
  - Fails after it did what it could when a node that took part does not have the images.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full, details: [The nodes are asked all the same, in a Slurm job that changes nothing.]}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  images:
    description: Images as M(hpcai.gpu_cluster.container_image) returns them.
    type: list
    elements: dict
    default: []
  absent: {type: list, elements: str, default: [], description: Names of images that are removed from the nodes.}
  source: {type: path, required: true, description: Shared directory that all nodes see; gets C(stage.py) too.}
  directory:
    description:
      - Directory on the nodes. What is above it must be there; only the user who runs this and root may write to it.
    type: path
    required: true
  nodes: {type: str, default: "", description: Slurm's host list of nodes that get the images; all by default.}
  partition: {type: str, description: "Slurm partition; without it the default one, for nodes not in it any other."}
  transport:
    description: >-
      V(shared) lets nodes read from O(source), O(fan_out) at a time. V(sbcast) sends each file through Slurm's daemons
      as a tree: the storage serves it once, and one bad node can stop it.
    type: str
    choices: [shared, sbcast]
    default: shared
  fan_out: {type: int, default: 64, description: "Nodes that read, or that sbcast sends to, at a time; 0: no limit."}
  keep: {type: int, default: 1, description: Old versions that stay on a node for jobs that use them.}
  min_free: {type: int, default: 1024, description: MB of the nodes' directory that are to stay free.}
  verify: {type: bool, default: false, description: Let the nodes read all of their images.}
  wait: {type: int, default: 60, description: Seconds to wait for nodes.}
  options: {type: dict, default: {}, description: "Further long options of salloc; underscores become dashes."}
  python: {type: str, default: python3, description: Python on the nodes.}
  timeout: {type: int, default: 3600, description: Seconds for everything.}
"""

EXAMPLES = r"""
- name: Bring the image to all nodes
  hpcai.gpu_cluster.container_staging:
    images: ["{{ kept.image }}"]
    source: /shared/images
    directory: /scratch/images
  become: true
  become_user: images
"""

RETURN = r"""
planned: {description: Nodes that are to have the images., type: list, elements: str, returned: always}
staged: {description: Nodes that have them all., type: list, elements: str, returned: always}
missing:
  description: The other planned nodes; C(fault) is false for those out of service, busy, or left by check mode.
  type: list
  elements: dict
  returned: always
  sample: [{node: c7, reason: "is down+not_responding: Not responding", fault: false}]
changes:
  {description: What was brought to which node., type: dict, returned: always, sample: {c1: pytorch is not there}}
"""

import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_job import Cluster, Tools, publish
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_plan import sentence
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_request import ARGUMENTS, read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_staging import Staging
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.read import Reader


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    params = module.params

    def run(argv: list[str]) -> tuple[int, str, str]:
        return t.cast(t.Tuple[int, str, str], module.run_command([paths.get(argv[0], argv[0]), *argv[1:]]))

    paths = {
        name: module.get_bin_path(name, required=True) for name in ("salloc", "srun", "sbcast", "scontrol", "sinfo")
    }
    tools = Tools(paths, params["python"], params["options"], time.monotonic() + params["timeout"])
    try:
        request = read(params, expand(params["nodes"]), module.check_mode)
        published = publish(Path(params["source"]), module.check_mode)
        found = Staging(request, Cluster(Reader(run), tools)).run()
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Staging images to {params['directory']}: {exc}")
    diff = {"before": found["changes"], "after": dict.fromkeys(found["changes"], "current")}
    result = {"changed": published or bool(found["changes"]), "diff": diff, **found}
    if any(one["fault"] for one in found["missing"]):
        module.fail_json(msg=f"Staging images to {params['directory']}: {sentence(found)}", **result)
    if found["missing"] and not module.check_mode:
        module.warn(sentence(found))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
