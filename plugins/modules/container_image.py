#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: container_image
short_description: Keep a container image as one squashfs on a shared directory
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Imports an image once with enroot, or takes a squashfs that exists, so that no node has to ask a registry.
  - It is kept as C(NAME-SHA12.sqsh) beside a manifest in JSON, and the link C(NAME.sqsh) moves to it by one rename when
    all of it is on the disk and was checked. It stays what it is until O(source), O(sha256), O(squash_options) or, with
    O(pull=always), the registry's tag changes.
  - A second run reads neither the image nor, with O(pull=missing), the registry.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  name: {type: str, required: true, description: Name of the image; what users write is the link C(NAME.sqsh).}
  state: {type: str, choices: [present, absent], default: present, description: V(absent) removes all its versions.}
  source:
    description:
      - C(docker://[USER@]REGISTRY#IMAGE[:TAG][@sha256:DIGEST]) for C(enroot import), or a squashfs as C(https://) URL
        or as absolute path on this host, which need O(sha256).
      - Passwords for registries are in enroot's own C(.credentials) of the user who runs this. What is behind a C(?) in
        a URL is neither kept nor shown.
    type: str
  sha256: {type: str, default: "", description: Digest of the squashfs.}
  pull:
    description: When a registry is asked. V(check) only warns of a tag that moved, V(always) imports it.
    type: str
    choices: [missing, check, always]
    default: missing
  directory:
    description: Directory for images, made if missing; no one but its owner and root may write to it.
    type: path
    required: true
  squash_options:
    {type: str, default: "", description: "E(ENROOT_SQUASH_OPTIONS) for the import, by default enroot.conf's."}
  import_on:
    {type: str, choices: [node, here], default: node, description: Import on a node through Slurm or on this host.}
  partition: {type: str, description: Slurm partition of that node.}
  srun_options: {type: dict, default: {}, description: Further long options of srun.}
  keep: {type: int, default: 1, description: Old versions that stay for jobs that use them.}
  verify: {type: bool, default: false, description: Read all of the image even if nothing seems to have changed it.}
  timeout: {type: int, default: 3600, description: Seconds for one question or one import.}
"""

EXAMPLES = r"""
- name: Keep PyTorch's image
  hpcai.gpu_cluster.container_image:
    name: pytorch
    source: docker://nvcr.io#nvidia/pytorch:26.01-py3
    directory: /shared/images
  become: true
  become_user: images
"""

RETURN = r"""
image:
  description:
    - The image. C(path) never changes its content, C(link) moves. C(file) is empty in check mode when it would be made.
  type: dict
  returned: when O(state=present)
  sample:
    {name: pytorch, file: pytorch-1f0c2a9b7d3e.sqsh, path: /shared/images/pytorch-1f0c2a9b7d3e.sqsh,
     link: /shared/images/pytorch.sqsh, sha256: 1f0c..., size: 9663676416, source: "docker://nvcr.io#nvidia/pytorch:26.01-py3",
     digest: "sha256:77aa...", squash_options: "", enroot: 4.1.2}
reason: {description: Why it is imported or taken anew., type: str, returned: when O(state=present)}
moved: {description: From where to where the tag moved since the import., type: dict, returned: when it was asked}
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_origin import Origin, on_a_node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_source import ARGUMENTS, Asked
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_store import Store


class Module(AnsibleModule):
    """Keeps a token in the source out of the system's log too, which is written before main goes on."""

    def _log_invocation(self) -> None:
        self.no_log_values |= {Asked("", self.params.get("source") or "").secret} - {""}
        super()._log_invocation()


def main() -> None:
    os.umask(0o022)  # others read the images, whatever the habit of their owner is
    module = Module(argument_spec=ARGUMENTS, required_if=[("state", "present", ["source"])], supports_check_mode=True)
    params = module.params
    asked = Asked(**{name: params[name] or "" for name in Asked._fields})
    srun = []
    if params["import_on"] == "node" and asked.kind == "docker" and params["state"] == "present":
        srun = on_a_node(module.get_bin_path("srun", required=True), params["partition"], params["srun_options"])
    origin = Origin(asked, srun, params["timeout"], lambda url: open_url(url, timeout=60))
    store = Store(Path(params["directory"]), asked, origin, params["keep"], params["verify"])
    try:
        if params["state"] == "absent":
            module.exit_json(changed=store.remove(module.check_mode))
        result = store.ensure(module.check_mode)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Image {asked.name} in {params['directory']}: {exc}")
    if result["moved"] and not result["changed"]:
        module.warn(
            "The tag of {0} moved from {from} to {to}; pull: always imports it".format(asked.told, **result["moved"])
        )
    module.exit_json(diff={"before": result.pop("before"), "after": result["image"]}, **result)


if __name__ == "__main__":
    main()
