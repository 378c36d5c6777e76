#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_staging
short_description: Copy container images to the scratch of every node through Slurm
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Queries in one Slurm job per partition which images the nodes have, and copies what is missing in a second job over
    the nodes that lack it. No SSH to the nodes is needed.
  - >-
    Nodes whose CPUs are all allocated are left for the next run, as are nodes out of service. They are listed in
    RV(missing) with a warning and do not fail the task.
  - >-
    A node writes a file under another name, hashes it on the way, and gives it its name when the whole file is on its
    disk. Links move after all nodes have been served. A file is not read again while its size, times and inode are the
    same.
  - >-
    When a node that took part does not have the images in the end, the task fails, after the other nodes have been
    served.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: The nodes are queried all the same, in a Slurm job that changes nothing.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  images:
    description:
      - >-
        Images as RV(hpcai.gpu_cluster.container_image#module:image) describes them. C(name), C(file), C(sha256) and
        C(size) are used, and only check mode accepts an image without a file.
    type: list
    elements: dict
    default: []
  absent:
    description:
      - Names of images whose link and versions are removed from the nodes. A name cannot be in O(images) as well.
    type: list
    elements: str
    default: []
  source:
    description:
      - >-
        Directory of the images, which all nodes see under the same path. The module writes the program C(stage.py)
        there, with which a node that joins later copies the images itself.
    type: path
    required: true
  directory:
    description:
      - >-
        Directory for the images on the nodes. It is made when missing, but not the directory above it, so that a
        scratch file system that is not mounted is an error.
      - >-
        It and all above it must belong to root or to the user who runs the task. It must not be writable for others,
        and those above it only with the sticky bit.
    type: path
    required: true
  nodes:
    description:
      - >-
        Hostlist expression of the nodes that get the images, such as V(c[1-64]). Empty for all nodes that are not in
        state C(FUTURE). A name that Slurm does not know is an error.
    type: str
    default: ''
  partition:
    description:
      - >-
        Slurm partition of the jobs; nodes that are not in it are reported as missing. Without it each node is used
        through the default partition, or through another one that is C(UP) if it is not in the default partition.
    type: str
  transport:
    description:
      - V(shared) lets the nodes read from O(source), O(fan_out) of them at a time.
      - >-
        V(sbcast) sends each file through Slurm's daemons as a tree, so that the file server reads it once. One bad
        node can stop the transfer of the others.
    type: str
    choices: [shared, sbcast]
    default: shared
  fan_out:
    description:
      - >-
        With O(transport=shared) the number of nodes that read at a time, where 0 is no limit. With O(transport=sbcast)
        the fan-out of its tree (C(--fanout)), where 0 leaves it to Slurm.
    type: int
    default: 64
  keep:
    description:
      - Number of older versions of an image that stay on a node for jobs that still use them.
    type: int
    default: 1
  min_free:
    description:
      - >-
        Decimal megabytes that must stay free in the file system of O(directory). A node where the images would leave
        less gets none of them and fails the task.
    type: int
    default: 1024
  verify:
    description:
      - Let the nodes hash all of their images, also those whose size, times and inode are unchanged.
    type: bool
    default: false
  wait:
    description:
      - >-
        Seconds to wait, for each partition, until Slurm gives the nodes. Nodes that are still busy then are reported
        as missing. Nodes whose CPUs are all allocated are not waited for.
    type: int
    default: 60
  options:
    description:
      - >-
        Further long options of C(salloc). Underscores become dashes, V(true) is a bare flag, V(false) leaves an option
        out. The job requests one CPU and 1 GB a node unless C(cpus_per_task) or C(mem) say otherwise.
      - >-
        What the module sets itself cannot be changed, namely C(partition), C(nodes), C(ntasks_per_node), C(exclude),
        C(immediate), C(time), C(no_kill) and C(chdir).
    type: dict
    default: {}
  python:
    description:
      - Python on the nodes, as a name on E(PATH) or a path. Nothing but its standard library is used.
    type: str
    default: python3
  timeout:
    description:
      - Seconds for all jobs together. It limits the time of the Slurm jobs too.
    type: int
    default: 3600
notes:
  - Role P(hpcai.gpu_cluster.container_images#role) calls this module.
  - Needs C(salloc), C(srun), C(sbcast), C(scontrol) and C(sinfo) on the managed host.
seealso:
  - module: hpcai.gpu_cluster.container_image
"""

EXAMPLES = r"""
- name: Keep the image on the shared directory
  hpcai.gpu_cluster.container_image:
    name: pytorch
    source: docker://$oauthtoken@nvcr.io#nvidia/pytorch:26.01-py3
    directory: /shared/images
  become: true
  become_user: images
  register: kept

- name: Copy the image to all nodes
  hpcai.gpu_cluster.container_staging:
    images: ["{{ kept.image }}"]
    source: /shared/images
    directory: /scratch/images
  become: true
  become_user: images

- name: Send the image to 512 nodes through Slurm's daemons and remove an old one
  hpcai.gpu_cluster.container_staging:
    images: ["{{ kept.image }}"]
    absent: [train-2025.2]
    source: /shared/images
    directory: /scratch/images
    nodes: c[001-512]
    partition: gpu
    transport: sbcast
    wait: 300
    timeout: 7200
  become: true
  become_user: images

- name: List the nodes that lack the image, without copying it
  hpcai.gpu_cluster.container_staging:
    images: ["{{ kept.image }}"]
    source: /shared/images
    directory: /scratch/images
  become: true
  become_user: images
  check_mode: true
  register: lacking
"""

RETURN = r"""
planned:
  description:
    - Names of the nodes that should have the images.
  returned: success, and when nodes that took part do not have the images
  type: list
  elements: str
  sample: [c1, c2, c7]
staged:
  description:
    - Names of the planned nodes that have all images, sorted.
  returned: success, and when nodes that took part do not have the images
  type: list
  elements: str
  sample: [c1, c2]
missing:
  description:
    - The other planned nodes.
  returned: success, and when nodes that took part do not have the images
  type: list
  elements: dict
  contains:
    node:
      description:
        - Name of the node.
      returned: always
      type: str
      sample: c7
    reason:
      description:
        - Why it does not have the images.
      returned: always
      type: str
      sample: "is down+not_responding: Not responding"
    fault:
      description:
        - >-
          Whether that fails the task. V(false) for nodes that are out of service or busy, in no open partition, or
          left unchanged by check mode.
      returned: always
      type: bool
      sample: false
changes:
  description:
    - By the name of the node, what was copied or removed there, or would be in check mode.
  returned: success, and when nodes that took part do not have the images
  type: dict
  sample:
    c1: pytorch is not there
    c2: train-2025.2 is to be removed
"""

import time
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_staging import (
    SPEC,
    Staging,
    StagingCluster,
    Tools,
    publish,
    read,
    sentence,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import expand
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import SlurmReader


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Publish the images' sources, and bring the images to the nodes."""
    params = module.params
    programs = ("salloc", "srun", "sbcast", "scontrol", "sinfo")
    paths = {name: module.get_bin_path(name, required=True) for name in programs}

    def run(argv: list[str]) -> tuple[int, str, str]:
        return t.cast(t.Tuple[int, str, str], module.run_command([paths.get(argv[0], argv[0]), *argv[1:]]))

    tools = Tools(paths, params["python"], params["options"], time.monotonic() + params["timeout"])
    request = read(params, expand(params["nodes"]), module.check_mode)
    published = publish(Path(params["source"]), module.check_mode)
    staged = Staging(request, StagingCluster(SlurmReader(run), tools)).run()
    diff = {"before": staged["changes"], "after": dict.fromkeys(staged["changes"], "current")}
    return {"changed": published or bool(staged["changes"]), "diff": diff, **staged}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Staging images to {module.params['directory']}: {exc}")
    if any(node["fault"] for node in result["missing"]):
        module.fail_json(msg=f"Staging images to {module.params['directory']}: {sentence(result)}", **result)
    if result["missing"] and not module.check_mode:
        module.warn(sentence(result))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
