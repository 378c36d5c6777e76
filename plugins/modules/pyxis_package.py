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
  - >-
    Slurm loads a plugin only if it was built with the headers of Slurm's own release, so there is one package for each
    release. Headers of another release than the requested one are refused.
  - >-
    A package is kept in O(cache_dir) under a digest of all that decides its content, which are source, headers,
    compiler, architecture and recipe, with a manifest beside it. It is built again only when one of these changes. A
    host that has no compiler or headers any more keeps using the package that it built.
  - >-
    A package is kept only after the build ended well, the plugin says that it is for that Slurm, and C(srun), where
    there is one, loads it. A second build at the same time waits and takes the package of the first.
  - In check mode the result is the plan. The package is not installed by this module.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
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
  slurm_version:
    description:
      - >-
        Slurm to build for, as a release such as V(24.11) or a whole version such as V(24.11.5). Empty for the C(slurmd)
        that is installed here, or the client commands where there is no C(slurmd).
    type: str
    default: ''
  slurm_home:
    description:
      - >-
        Directory with C(include) and C(bin) of a Slurm that did not come as packages, such as V(/opt/slurm). Empty for
        the headers in C(/usr/include).
    type: str
    default: ''
  packages:
    description:
      - >-
        Debian packages that an earlier task installs, by their names without a version. Check mode fails when a build
        needs a package that this host lacks and this list does not name. Otherwise the option does nothing.
    type: list
    elements: str
    default: []
  cache_dir:
    description:
      - Directory where packages and manifests are kept. It is made when missing.
    type: path
    default: /var/cache/hpcai/packages
  build_dir:
    description:
      - Directory in which a temporary build directory is made. That is removed afterwards.
    type: path
    default: /var/tmp
  timeout:
    description:
      - Seconds that the build may take.
    type: float
    default: 600
notes:
  - Role P(hpcai.gpu_cluster.pyxis#role) calls this module.
seealso:
  - module: hpcai.gpu_cluster.pyxis_info
"""

EXAMPLES = r"""
- name: Build pyxis 0.24.0 for the Slurm that is installed here
  hpcai.gpu_cluster.pyxis_package:
    source:
      git: https://github.com/NVIDIA/pyxis.git
      commit: 107519944221822ea1dace4db8e7234b2eaa4cd5
    archive: /var/tmp/pyxis.tar # made by git archive
  become: true
  register: pyxis

- name: Install the package that was built
  ansible.builtin.apt:
    deb: "{{ pyxis.package.file }}"
  become: true

- name: Build pyxis for a Slurm below /opt
  hpcai.gpu_cluster.pyxis_package:
    source:
      git: https://github.com/NVIDIA/pyxis.git
      commit: 107519944221822ea1dace4db8e7234b2eaa4cd5
    archive: /var/tmp/pyxis.tar
    slurm_home: /opt/slurm
  become: true

- name: Plan a build for Slurm 25.05, whose headers a later task installs
  hpcai.gpu_cluster.pyxis_package:
    source:
      git: https://github.com/NVIDIA/pyxis.git
      commit: 107519944221822ea1dace4db8e7234b2eaa4cd5
    slurm_version: "25.05"
    packages: [gcc, make, libc6-dev, libslurm-dev]
  check_mode: true
  register: plan
"""

RETURN = r"""
package:
  description:
    - Manifest of the package. Empty in check mode when it is not built yet.
  returned: success
  type: dict
  contains:
    name:
      description:
        - Name of the package.
      returned: always
      type: str
      sample: nvslurm-plugin-pyxis
    version:
      description:
        - Version of the package.
      returned: always
      type: str
      sample: 0.24.0+slurm24.11.5+hpcai.3f1c52a09b7e
    file:
      description:
        - Path of the package.
      returned: always
      type: str
      sample: /var/cache/hpcai/packages/nvslurm-plugin-pyxis_0.24.0+slurm24.11.5+hpcai.3f1c52a09b7e_amd64.deb
    sha256:
      description:
        - SHA-256 of the package.
      returned: always
      type: str
      sample: 5c4bc5d5c3ad3e0e7ba0c6fb2ef4b2a1c9e0d3b7b9a3d5a9f3f0a3b1f7c2d9e1
    pyxis:
      description:
        - Version of pyxis.
      returned: always
      type: str
      sample: 0.24.0
    made:
      description:
        - When it was built, in UTC.
      returned: always
      type: str
      sample: "2026-11-21T18:20:00Z"
    seconds:
      description:
        - Seconds that the build took.
      returned: always
      type: float
      sample: 5.1
    proof:
      description:
        - How the plugin was tested.
      returned: always
      type: str
      sample: srun loaded it
    inputs:
      description:
        - >-
          All that decided its content, which are C(source), C(slurm) (version of the headers), C(headers) (their
          digest), C(compiler), C(home) (O(slurm_home)), C(architecture) and C(recipe).
      returned: always
      type: dict
      sample:
        source: commit:107519944221822ea1dace4db8e7234b2eaa4cd5
        slurm: 24.11.5
        headers: 9b7d3e5f6071829304a5b6c7d8e9f00112233445566778899aabbccdde1f0c2a
        compiler: 12.2.0 x86_64-linux-gnu
        home: ""
        architecture: amd64
        recipe: 1
build:
  description:
    - Whether it was built in this run, or would be in check mode.
  returned: success
  type: bool
  sample: true
why:
  description:
    - Why it was built or not.
  returned: success
  type: str
  sample: built before
packages:
  description:
    - >-
      Debian packages that a build needs and this host lacks, the headers in the version of the installed Slurm. Empty
      when the package is kept already.
  returned: success
  type: list
  elements: str
  sample: [gcc, libslurm-dev=24.11.5-4]
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import pyxis_package


def main() -> None:
    module = AnsibleModule(argument_spec=pyxis_package.PACKAGE_SPEC, supports_check_mode=True)
    os.umask(0o022)  # slurmd's users load the plugin, whatever root's own habit is
    try:
        result = pyxis_package.PyxisBuilder(module.params, module.check_mode).perform()
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"pyxis: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
