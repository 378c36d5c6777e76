#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build pyxis for one Slurm."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pyxis_package
short_description: Build pyxis from its source into a Debian package for one release of Slurm
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Slurm loads a plugin only if it was built with the headers of Slurm's own release, so there is one package per
    release. Headers of another Slurm than the one that is wanted are refused.
  - A package is kept in O(cache_dir) by the digest of all that decided it, with a manifest beside it, and made again
    only when one of these changes. A host that lost its compiler or headers keeps the package that it has.
  - Nothing is kept that did not build to the end, whose plugin does not say that it is for that Slurm, or that C(srun)
    does not load. Two builds at a time are one.
  - In check mode the answer is the plan, with RV(packages) that a build would need.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  source:
    description: The source, either C(git) and C(commit), a full commit id, or C(archive) and C(sha256).
    type: dict
    required: true
  archive: {type: path, description: File on this host with that source; needed when there is something to build.}
  slurm_version:
    {type: str, default: "", description: "The Slurm to build for, such as V(24.11); without it the installed one."}
  slurm_home:
    description: Directory with C(include) and C(bin) of a Slurm that did not come as packages, such as V(/opt/slurm).
    type: str
    default: ""
  packages:
    {type: list, elements: str, default: [], description: "In check mode, packages whose content is not missing."}
  cache_dir: {type: path, default: /var/cache/hpcai/packages, description: Where packages are kept.}
  build_dir: {type: path, default: /var/tmp, description: Where builds happen; what they leave is removed.}
  timeout: {type: float, default: 600, description: Seconds for the build.}
"""

EXAMPLES = r"""
- name: Build pyxis 0.24.0 for the Slurm that is installed here
  hpcai.gpu_cluster.pyxis_package:
    source: {git: "https://github.com/NVIDIA/pyxis.git", commit: 107519944221822ea1dace4db8e7234b2eaa4cd5}
    archive: /var/tmp/pyxis.tar # made by git archive
"""

RETURN = r"""
package:
  description: The manifest of the package; empty in check mode when it is not built yet.
  type: dict
  returned: success
  sample:
    name: nvslurm-plugin-pyxis
    version: 0.24.0+slurm24.11.5+hpcai.3f1c52a09b7e
    file: /var/cache/hpcai/packages/nvslurm-plugin-pyxis_0.24.0+slurm24.11.5+hpcai.3f1c52a09b7e_amd64.deb
    sha256: 5c4bc5d5c3ad3e0e7ba0c6fb2ef4b2a1c9e0d3b7b9a3d5a9f3f0a3b1f7c2d9e1
    pyxis: 0.24.0
    made: "2026-11-21T18:20:00Z"
    seconds: 5.1
    proof: srun loaded it
    inputs: {slurm: 24.11.5, source: "commit:107519944221822ea1dace4db8e7234b2eaa4cd5"}
build: {description: Whether it was built now., type: bool, returned: success}
why: {description: Why it was built or not., type: str, returned: success, sample: built before}
packages:
  description: Packages that a build needs and this host lacks; the headers in the version of the installed Slurm.
  type: list
  elements: str
  returned: success
  sample: [gcc, libslurm-dev=24.11.5-4]
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_build


def main() -> None:
    module = AnsibleModule(argument_spec=pyxis_build.SPEC, supports_check_mode=True)
    os.umask(0o022)  # slurmd's users load the plugin, whatever root's own habit is
    try:
        result = pyxis_build.Worker(module.params, module.check_mode).run()
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"pyxis: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
