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
  - >-
    Imports an image from a registry once with enroot, or copies an existing squashfs, so that no compute node contacts
    a registry.
  - >-
    The image is kept as C(NAME-SHA12.sqsh), where C(SHA12) are the first 12 digits of its SHA-256, beside a manifest in
    JSON. The link C(NAME.sqsh) moves to it by one rename, after the whole file is on the disk and was checked.
  - >-
    A version never changes. A new one is imported or copied when O(sha256) changes, when the file is missing or
    damaged, and for a registry also when O(source) or O(squash_options) changes or, with O(pull=always), when the tag
    moved. An older version that is still kept and is the same is used again instead.
  - A second run reads neither the image nor, with O(pull=missing), the registry.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: With O(pull=check) and O(pull=always) the registry is queried all the same.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  name:
    description:
      - >-
        Name of the image; users give the link C(NAME.sqsh) to Slurm. Lower-case letters and digits with C(.), C(_),
        C(+) and C(-) in between, at most 100 characters, not ending in C(.sqsh) or in a dash and 12 hexadecimal digits.
    type: str
    required: true
  state:
    description:
      - V(present) has the image, importing it when needed.
      - V(absent) removes the link and all versions, also those that jobs still use.
    type: str
    choices: [present, absent]
    default: present
  source:
    description:
      - >-
        Where the image comes from. It is C(docker://[USER@]REGISTRY#IMAGE[:TAG][@sha256:DIGEST]) for C(enroot import),
        or the C(https://) URL or absolute path on this host of a squashfs, which both need O(sha256).
      - >-
        A password for a registry belongs into enroot's file C(.credentials) of the user who runs the task; see
        M(hpcai.gpu_cluster.enroot_credentials). A URL with a user name is refused, and what follows a C(?) in a URL is
        neither kept nor shown.
      - Required for O(state=present).
    type: str
  sha256:
    description:
      - SHA-256 of the squashfs as 64 hexadecimal digits. An image with another digest is not taken.
      - >-
        Optional for a registry, where the digest of the tag is pinned in O(source) instead, as enroot does not make
        the same squashfs twice.
    type: str
    default: ''
  pull:
    description:
      - When the registry is queried for the digest of the tag, if O(source) does not pin one.
      - V(missing) queries it only for an import.
      - V(check) queries it at every run and warns when the tag moved since the import.
      - V(always) queries it at every run and imports a tag that moved.
      - An enroot before 4.1 cannot query digests, so that V(check) and V(always) notice nothing with it.
    type: str
    choices: [missing, check, always]
    default: missing
  directory:
    description:
      - >-
        Directory of the images, which compute nodes see as well. It is made when missing, but not the directories
        above it.
      - >-
        It and all above it must belong to root or to the user who runs the task. It must not be writable for others,
        and those above it only with the sticky bit.
    type: path
    required: true
  squash_options:
    description:
      - >-
        Options of C(mksquashfs) for the import (E(ENROOT_SQUASH_OPTIONS)). Empty, those of C(enroot.conf) hold. Only
        for a registry.
    type: str
    default: ''
  import_on:
    description:
      - >-
        Where enroot runs. V(node) uses any one compute node through C(srun), which must be on this host, V(here) uses
        this host. A URL or path is always copied by this host.
    type: str
    choices: [node, here]
    default: node
  partition:
    description:
      - Slurm partition of that node. Without it Slurm takes its default partition.
    type: str
  srun_options:
    description:
      - >-
        Further long options of C(srun). Underscores become dashes, V(true) is a bare flag, V(false) leaves an option
        out. One node and one task are always requested.
    type: dict
    default: {}
  keep:
    description:
      - Number of older versions that stay for jobs that still use them. They are removed when a new version comes.
    type: int
    default: 1
  verify:
    description:
      - >-
        Hash the whole image although its size, times and inode are as they were when it was hashed. A damaged image is
        imported again.
    type: bool
    default: false
  timeout:
    description:
      - >-
        Seconds that one command of enroot may take, the wait for a node included. It does not limit the copy of a URL
        or path.
    type: int
    default: 3600
notes:
  - Role P(hpcai.gpu_cluster.container_images#role) calls this module.
seealso:
  - module: hpcai.gpu_cluster.container_staging
  - module: hpcai.gpu_cluster.enroot_credentials
"""

EXAMPLES = r"""
- name: Keep PyTorch from NGC, imported on a compute node
  hpcai.gpu_cluster.container_image:
    name: pytorch
    source: docker://$oauthtoken@nvcr.io#nvidia/pytorch:26.01-py3
    directory: /shared/images
    partition: cpu
    srun_options:
      cpus_per_task: 16
      mem: 64G
  become: true
  become_user: images
  register: kept

- name: Warn when the tag of an image moved
  hpcai.gpu_cluster.container_image:
    name: ubuntu
    source: docker://docker.io#library/ubuntu:24.04
    pull: check
    directory: /shared/images
    import_on: here
  become: true
  become_user: images

- name: Keep a squashfs that a build system published
  hpcai.gpu_cluster.container_image:
    name: train-2026.1
    source: https://artifacts.example.org/images/train-2026.1.sqsh
    sha256: 1f0c2a9b7d3e5f6071829304a5b6c7d8e9f00112233445566778899aabbccdde
    directory: /shared/images
    keep: 2
  become: true
  become_user: images

- name: Hash an image again after trouble with the file server
  hpcai.gpu_cluster.container_image:
    name: pytorch
    source: docker://$oauthtoken@nvcr.io#nvidia/pytorch:26.01-py3
    directory: /shared/images
    verify: true
  become: true
  become_user: images

- name: Remove an image with all its versions
  hpcai.gpu_cluster.container_image:
    name: train-2025.2
    state: absent
    directory: /shared/images
  become: true
  become_user: images
"""

RETURN = r"""
image:
  description:
    - The image. M(hpcai.gpu_cluster.container_staging) takes it as it is.
  returned: when O(state=present)
  type: dict
  contains:
    name:
      description:
        - Name of the image.
      returned: always
      type: str
      sample: pytorch
    file:
      description:
        - File of this version. Empty in check mode when it would be made.
      returned: always
      type: str
      sample: pytorch-1f0c2a9b7d3e.sqsh
    path:
      description:
        - Its whole path, whose content never changes. Empty in check mode when it would be made.
      returned: always
      type: str
      sample: /shared/images/pytorch-1f0c2a9b7d3e.sqsh
    link:
      description:
        - The link, which moves to every new version.
      returned: always
      type: str
      sample: /shared/images/pytorch.sqsh
    sha256:
      description:
        - SHA-256 of the squashfs. In check mode, for an image that would be made, O(sha256).
      returned: always
      type: str
      sample: 1f0c2a9b7d3e5f6071829304a5b6c7d8e9f00112233445566778899aabbccdde
    size:
      description:
        - Size in bytes, 0 in check mode when it would be made.
      returned: always
      type: int
      sample: 9663676416
    source:
      description:
        - Where it came from, without what follows a C(?) in a URL.
      returned: always
      type: str
      sample: docker://$oauthtoken@nvcr.io#nvidia/pytorch:26.01-py3
    digest:
      description:
        - Digest of the tag in the registry at the import. Empty where it is not known, and for a URL or path.
      returned: always
      type: str
      sample: sha256:77aa2c9b7d3e5f6071829304a5b6c7d8e9f00112233445566778899aabbccdde
    squash_options:
      description:
        - The O(squash_options) of the import.
      returned: always
      type: str
      sample: "-comp zstd"
    enroot:
      description:
        - Version of the enroot that imported it. Empty for a URL or path.
      returned: always
      type: str
      sample: 4.1.2
reason:
  description:
    - Why the image is imported or copied, or would be in check mode. Empty when it is current.
  returned: when O(state=present)
  type: str
  sample: it is not there
moved:
  description:
    - >-
      From which digest to which the tag moved since the import, under C(from) and C(to). V(null) when it did not move
      or the registry was not queried.
  returned: when O(state=present)
  type: dict
  sample:
    from: sha256:77aa2c9b7d3e5f6071829304a5b6c7d8e9f00112233445566778899aabbccdde
    to: sha256:88bb2c9b7d3e5f6071829304a5b6c7d8e9f00112233445566778899aabbccdde
"""

import os
import typing as t
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers.image_store import (
    SPEC,
    EnrootOrigin,
    ImageReference,
    ImageStore,
    on_a_node,
)


class Module(AnsibleModule):
    """Keeps a token in the source out of the system's log too, which is written before main goes on."""

    def _log_invocation(self) -> None:
        self.no_log_values |= {ImageReference("", self.params.get("source") or "").secret} - {""}
        super()._log_invocation()


def perform(module: AnsibleModule, reference: ImageReference) -> dict[str, t.Any]:
    """Have the image in the directory, or remove it from there."""
    params, srun = module.params, []
    if params["import_on"] == "node" and reference.kind == "docker" and params["state"] == "present":
        srun = on_a_node(module.get_bin_path("srun", required=True), params["partition"], params["srun_options"])
    origin = EnrootOrigin(reference, srun, params["timeout"], lambda url: open_url(url, timeout=60))
    store = ImageStore(Path(params["directory"]), reference, origin, params["keep"], params["verify"])
    if params["state"] == "absent":
        return {"changed": store.remove(module.check_mode)}
    result = store.ensure(module.check_mode)
    if result["moved"] and not result["changed"]:
        module.warn(
            "The tag of {0} moved from {from} to {to}; pull: always imports it".format(
                reference.public_source, **result["moved"]
            )
        )
    return {"diff": {"before": result.pop("before"), "after": result["image"]}, **result}


def main() -> None:
    os.umask(0o022)  # others read the images, whatever the habit of their owner is
    module = Module(argument_spec=SPEC, required_if=[("state", "present", ["source"])], supports_check_mode=True)
    reference = ImageReference(**{name: module.params[name] or "" for name in ImageReference._fields})
    try:
        result = perform(module, reference)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Image {reference.name} in {module.params['directory']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
