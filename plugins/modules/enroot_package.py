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
  - Builds enroot from its source alone, without the submodules of its repository, against the C library of this system.
  - A package is kept in O(cache_dir) by the digest of all that decided it, and made again only when one of these
    changes. The digest is a part of its version, so that hosts know whether they have it.
  - Nothing is kept that did not build to the end and start. Two builds at a time are one.
  - In check mode the answer is what a build would need.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  source:
    description: The source, either C(git) and C(commit), a full commit id, or C(archive) and C(sha256).
    type: dict
    required: true
  archive: {type: path, description: File on this host with that source; needed when there is something to build.}
  cache_dir: {type: path, default: /var/cache/hpcai/packages, description: Where packages are kept.}
  build_dir: {type: path, default: /var/tmp, description: Where builds happen; what they leave is removed.}
  timeout: {type: float, default: 900, description: Seconds for one command of a build.}
"""

EXAMPLES = r"""
- name: Build enroot 4.1.2
  hpcai.gpu_cluster.enroot_package:
    source: {git: "https://github.com/NVIDIA/enroot.git", commit: bd51f53b6fa954805ae3e1985c5dc7594ff66d05}
    archive: /var/tmp/enroot.tar # made by git archive
"""

RETURN = r"""
digest: {description: What tells this package from others., type: str, returned: success, sample: 3f1c52a09b7e}
path: {description: The package. Empty in check mode when it is not built yet., type: str, returned: success}
version: {description: "Its version, where it is known.", type: str, returned: success, sample: 4.1.2+hpcai.3f1c52}
sha256: {description: Checksum of the package., type: str, returned: success}
installed: {description: "Version that is installed here, if any.", type: str, returned: success}
current: {description: Whether that is this package., type: bool, returned: success}
packages: {description: Packages that a build needs and this host lacks., type: list, elements: str, returned: success}
system: {description: "What it is built for.", type: str, returned: success, sample: debian 12}
architecture: {description: Debian's name of it., type: str, returned: success, sample: amd64}
seconds: {description: What the build took; 0 when there was none., type: float, returned: success}
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._pinned_source import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_package


def bring(module: AnsibleModule) -> dict[str, t.Any]:
    """Build unless the package is there; a host that has it installed needs no file of it."""
    params = module.params
    task = enroot_package.read(params["source"], params["cache_dir"])
    found = {**enroot_package.look(task), "seconds": 0.0}
    absent = not found["path"]
    if absent and not module.check_mode:
        path, found["seconds"] = enroot_package.build(
            task, params["archive"] or "", params["build_dir"], params["timeout"]
        )
        found = {**enroot_package.look(task), "path": str(path), "seconds": round(found["seconds"], 1)}
    digest = sha256(found["path"]) if found["path"] else ""
    return {**found, "sha256": digest, "changed": absent}


def main() -> None:
    spec = {
        "source": {"type": "dict", "required": True},
        "archive": {"type": "path"},
        "cache_dir": {"type": "path", "default": "/var/cache/hpcai/packages"},
        "build_dir": {"type": "path", "default": "/var/tmp"},  # noqa: S108 - mkdtemp makes a directory in it
        "timeout": {"type": "float", "default": 900},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    os.umask(0o022)
    try:
        result = bring(module)
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"Cannot build enroot: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
