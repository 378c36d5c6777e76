#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: enroot_package
short_description: Build enroot from its source into a Debian package for this system
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - >-
    Builds enroot from a pinned source, without the submodules of its repository and without network, against the C
    library of this system, for x86_64 and aarch64.
  - >-
    A package is kept in O(cache_dir) under a digest of all that decides its content, which are source, distribution and
    its release, architecture and recipe. It is built again only when one of these changes. The digest is part of its
    version, from which a host knows whether it has this package installed.
  - >-
    A package is kept only after the build ended well and all its programs started. A second build at the same time
    waits and takes the package of the first.
  - In check mode the result lists what a build would need. The package is not installed by this module.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  source:
    description:
      - >-
        What pins the source. Either C(git), the URL of the repository, with C(commit), a full commit ID, or C(archive),
        the URL of a release archive, with C(sha256), its digest. A tag or a short ID is refused.
      - Nothing is fetched from these URLs; the file comes from O(archive).
    type: dict
    required: true
  archive:
    description:
      - >-
        File on this host with that source. For C(git) it is a tar file made by C(git archive), which records the
        commit. A file with another commit or digest is refused.
      - Needed only when there is something to build.
    type: path
  cache_dir:
    description:
      - Directory where packages are kept. It is made when missing.
    type: path
    default: /var/cache/hpcai/packages
  build_dir:
    description:
      - Directory in which a temporary build directory is made. That is removed afterwards.
    type: path
    default: /var/tmp
  timeout:
    description:
      - Seconds that one command of the build may take.
    type: float
    default: 900
notes:
  - Role P(hpcai.gpu_cluster.enroot#role) calls this module.
seealso:
  - module: hpcai.gpu_cluster.enroot_config
"""

EXAMPLES = r"""
- name: Build enroot 4.1.2 from its repository
  hpcai.gpu_cluster.enroot_package:
    source:
      git: https://github.com/NVIDIA/enroot.git
      commit: bd51f53b6fa954805ae3e1985c5dc7594ff66d05
    archive: /var/tmp/enroot.tar # made by git archive
  become: true
  register: enroot

- name: Install the package that was built
  ansible.builtin.apt:
    deb: "{{ enroot.path }}"
  become: true
  when: not enroot.current

- name: List the packages that a build needs here
  hpcai.gpu_cluster.enroot_package:
    source:
      git: https://github.com/NVIDIA/enroot.git
      commit: bd51f53b6fa954805ae3e1985c5dc7594ff66d05
  check_mode: true
  register: needed

- name: Build enroot from a release archive that the site mirrors
  hpcai.gpu_cluster.enroot_package:
    source:
      archive: https://mirror.example.org/enroot-4.1.2.tar.gz
      sha256: 0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0
    archive: /var/tmp/enroot-4.1.2.tar.gz
    cache_dir: /shared/packages
  become: true
"""

RETURN = r"""
digest:
  description:
    - Digest of all that decides the content of the package.
  returned: success
  type: str
  sample: 3f1c52a09b7e
path:
  description:
    - Path of the package. Empty in check mode when it is not built yet.
  returned: success
  type: str
  sample: /var/cache/hpcai/packages/enroot_4.1.2+hpcai.3f1c52a09b7e_amd64.deb
version:
  description:
    - Version of the package. Empty when it is neither kept nor installed.
  returned: success
  type: str
  sample: 4.1.2+hpcai.3f1c52a09b7e
sha256:
  description:
    - SHA-256 of the file at RV(path). Empty where there is none.
  returned: success
  type: str
  sample: 5c4bc5d5c3ad3e0e7ba0c6fb2ef4b2a1c9e0d3b7b9a3d5a9f3f0a3b1f7c2d9e1
installed:
  description:
    - Version of enroot that is installed on this host. Empty where there is none.
  returned: success
  type: str
  sample: 4.1.2+hpcai.3f1c52a09b7e
current:
  description:
    - Whether the installed enroot is this package.
  returned: success
  type: bool
  sample: true
packages:
  description:
    - Debian packages that a build needs and this host lacks. Empty when the package is kept already.
  returned: success
  type: list
  elements: str
  sample: [libbsd-dev, makeself]
system:
  description:
    - Distribution and release that the package is built for.
  returned: success
  type: str
  sample: debian 12
architecture:
  description:
    - Architecture as Debian names it.
  returned: success
  type: str
  sample: amd64
seconds:
  description:
    - Seconds that the build took, 0 when there was none.
  returned: success
  type: float
  sample: 5.1
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_package

SPEC = {
    "source": {"type": "dict", "required": True},
    "archive": {"type": "path"},
    "cache_dir": {"type": "path", "default": "/var/cache/hpcai/packages"},
    "build_dir": {"type": "path", "default": "/var/tmp"},  # noqa: S108 - mkdtemp makes a directory in it
    "timeout": {"type": "float", "default": 900},
}


def perform(module: AnsibleModule) -> dict[str, t.Any]:
    """Build unless the package is there; a host that has it installed needs no file of it."""
    params = module.params
    task = enroot_package.read(params["source"], params["cache_dir"])
    observed = {**enroot_package.look(task), "seconds": 0.0}
    absent = not observed["path"]
    if absent and not module.check_mode:
        path, observed["seconds"] = enroot_package.build(
            task, params["archive"] or "", params["build_dir"], params["timeout"]
        )
        observed = {**enroot_package.look(task), "path": str(path), "seconds": round(observed["seconds"], 1)}
    digest = sha256(observed["path"]) if observed["path"] else ""
    return {**observed, "sha256": digest, "changed": absent}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    os.umask(0o022)
    try:
        result = perform(module)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Cannot build enroot: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
