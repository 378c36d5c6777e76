#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: package_repository
short_description: Add a repository of apt or dnf whose key has a known fingerprint
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Fetches the key of a repository, compares its fingerprint, and writes key and repository. The fingerprint is
    computed from the key, without C(gpg).
  - A file with any other key than the expected ones is refused, since the package manager would trust all of them.
  - A repository that a file of somebody else names already is left to that file (RV(elsewhere)).
  - Package lists are not fetched.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: The key is not fetched.
  diff_mode:
    support: full
  idempotent:
    support: full
    details: A key that is there is proved again and not fetched.
options:
  name:
    description:
      - Short name. The files are called C(hpcai-NAME).
    type: str
    required: true
  manager:
    description:
      - For which package manager.
    type: str
    choices: [apt, dnf]
    required: true
  state:
    description:
      - V(absent) removes what the module wrote.
    type: str
    choices: [present, absent]
    default: present
  url:
    description:
      - Address of the repository. Required for O(state=present).
    type: str
  suite:
    description:
      - Suite of a repository of apt. V(/) and V(./) are those of a flat one.
    type: str
    default: /
  components:
    description:
      - Components of a repository of apt that is not flat.
    type: list
    elements: str
    default: []
  key:
    description:
      - Address of the key, armoured or not; C(file://) serves as well. Required for O(state=present).
    type: str
  fingerprints:
    description:
      - Fingerprints of the keys that the file may have, with 40 or 64 hexadecimal digits, with or without spaces.
        Required for O(state=present).
    type: list
    elements: str
    default: []
  root:
    description:
      - Directory below which the files are written, for tests.
    type: path
    default: /
notes:
  - The module needs root privileges.
seealso:
  - module: ansible.builtin.deb822_repository
  - module: ansible.builtin.yum_repository
"""
EXAMPLES = r"""
- name: Add NVIDIA's CUDA repository
  hpcai.gpu_cluster.package_repository:
    name: nvidia-cuda
    manager: apt
    url: https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/
    key: https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/3bf863cc.pub
    fingerprints: [EB693B3035CD5710E231E123A4B469963BF863CC]
  become: true

- name: Add a mirror of the site, which another key signs
  hpcai.gpu_cluster.package_repository:
    name: nvidia-cuda
    manager: dnf
    url: https://mirror.example.com/cuda/rhel9/
    key: https://mirror.example.com/key.asc
    fingerprints: ["{{ mirror_fingerprint }}"]
  become: true

- name: Remove it
  hpcai.gpu_cluster.package_repository:
    name: nvidia-cuda
    manager: apt
    state: absent
  become: true
"""
RETURN = r"""
elsewhere:
  description: Files of others that name the repository. With any the module changes nothing.
  type: list
  elements: str
  returned: success
  sample: [/etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.list]
source:
  description: The file that describes the repository.
  type: str
  returned: success
  sample: /etc/apt/sources.list.d/hpcai-nvidia-cuda.list
key:
  description: The file with its key.
  type: str
  returned: success
  sample: /etc/apt/keyrings/hpcai-nvidia-cuda.gpg
"""

import urllib.error

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import FileError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.repository import SPEC, RepositoryError, perform


def fetch(url: str) -> bytes:
    """Return the first MiB of what is at the URL."""
    try:
        return bytes(open_url(url, timeout=60, http_agent="hpcai.gpu_cluster").read(1 << 20))
    except (OSError, ValueError, urllib.error.URLError) as exc:
        raise RepositoryError(f"the key cannot be fetched from {url}: {exc}") from exc


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module, module.params, fetch)
    except (FileError, OSError, RepositoryError) as exc:
        module.fail_json(msg=f"Repository {module.params['name']}: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
