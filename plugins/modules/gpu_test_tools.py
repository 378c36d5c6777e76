#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_test_tools
short_description: Build, find and prove nccl-tests, nvbandwidth and bandwidthTest
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Installs each tool from the first of O(origins) that can provide it. A build is kept in a directory of its own below
    O(prefix), together with everything that determines its result, and is made again only if one of these changes.
    Older builds stay.
  - The links in C(bin) are changed to another build only after that was proved. The programs must load without missing
    libraries and measure something on a GPU, or on a host without GPU stop for that reason alone.
  - If a required tool cannot be provided, the module fails, names everything that is missing, and changes nothing.
  - In check mode the module returns the plan, with the RV(sources) and RV(packages) that a build would need.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  prefix:
    description:
      - Directory of the tools. Builds are in C(versions), the links to the programs in C(bin). It may be on a shared
        file system.
      - It, and each directory above it, has to belong to root or the user of the task, and nobody else may write to it;
        a directory above it may be sticky, as C(/tmp) is. A build that somebody else put there is refused.
    type: path
    default: /opt/gpu_test_tools
  tools:
    description:
      - Tools to install. V(nccl_tests) is nccl-tests without MPI, V(nccl_tests_mpi) with MPI, whose programs have the
        suffix C(_mpi) in C(bin).
      - V(bandwidth_test) is never built, only found on the host, and may be missing.
    type: list
    elements: str
    choices: [nccl_tests, nccl_tests_mpi, nvbandwidth, bandwidth_test]
    default: [nccl_tests, nccl_tests_mpi, nvbandwidth, bandwidth_test]
  origins:
    description:
      - Where tools come from, in the order of preference. V(source) builds them, V(image) uses what the host already
        has.
    type: list
    elements: str
    choices: [source, image]
    default: [source, image]
  sources:
    description:
      - Source of V(nccl_tests) (for both of its builds) and of V(nvbandwidth), each either as C(git), a URL, and
        C(commit), a full commit id, or as C(archive), a URL, and C(sha256). The module downloads nothing; it only
        checks O(archives) against them.
    type: dict
    default: {}
  archives:
    description:
      - Archives on this host, by the same names as O(sources). One is needed for every source in RV(sources). An
        archive of a git commit is what C(git archive) writes.
    type: dict
    default: {}
  architectures:
    description:
      - Compute capabilities to build for, such as V(8.0) or V(9.0a). The CUDA toolkit must support all of them.
      - By default those of the GPUs of this host, so that a host without GPU needs this to build.
    type: list
    elements: str
    default: []
  cuda_home:
    description:
      - Directory of the CUDA toolkit. By default V(/usr/local/cuda), then the toolkit of the C(nvcc) on E(PATH).
    type: path
  nccl_home:
    description:
      - Directory with C(include) and C(lib) of NCCL. By default the CUDA toolkit, V(/usr/local/nccl), V(/usr/local) and
        V(/usr) are searched.
    type: path
  mpi_home:
    description:
      - Directory with C(include) and C(lib) of an MPI. By default that of the C(mpicc) on E(PATH) or in the usual
        directories of HPC-X and Open MPI.
    type: path
  image_dirs:
    description:
      - Directories that are searched before the usual ones for tools of the image.
    type: list
    elements: path
    default: []
  packages:
    description:
      - Names of packages that will be installed before the build. Only used in check mode, where what they provide does
        not count as missing.
    type: list
    elements: str
    default: []
  build_dir:
    description:
      - Directory for temporary build directories, which are removed after the build.
    type: path
    default: /var/tmp
  environment:
    description:
      - Environment variables for builds and proofs. Quote values that YAML would read as booleans.
    type: dict
    default: {}
  jobs:
    description:
      - Number of compilers that run at the same time. The default is the number of CPUs that the module may use.
    type: int
  timeout:
    description:
      - Seconds for one command of a build.
    type: float
    default: 3600
requirements:
  - For O(origins=source) make, g++, the CUDA toolkit and NCCL, for V(nccl_tests_mpi) an MPI, for V(nvbandwidth) CMake
    3.20 or later and Boost
seealso:
  - module: hpcai.gpu_cluster.nccl_tests
  - module: hpcai.gpu_cluster.gpu_bandwidth
"""

EXAMPLES = r"""
- name: Use the test tools that the image has
  hpcai.gpu_cluster.gpu_test_tools:
    origins: [image]
    image_dirs: [/opt/azurehpc/test/nvbandwidth/bin]
  become: true

- name: Build nvbandwidth for H100
  hpcai.gpu_cluster.gpu_test_tools:
    tools: [nvbandwidth]
    architectures: ["9.0"]
    sources:
      nvbandwidth:
        git: https://github.com/NVIDIA/nvbandwidth.git
        commit: 66746a3bef61c8c2e12ab34955310da70b9e38cb
    archives:
      nvbandwidth: /var/tmp/nvbandwidth.tar.gz
  become: true

- name: Show what would have to be built, and what that needs
  hpcai.gpu_cluster.gpu_test_tools:
    architectures: ["8.0", "9.0"]
    sources: "{{ test_tool_sources }}"
    packages: [cmake, libboost-program-options-dev]
  check_mode: true
  register: planned

- name: Build nccl-tests with HPC-X on a shared file system
  hpcai.gpu_cluster.gpu_test_tools:
    prefix: /shared/gpu_test_tools
    tools: [nccl_tests, nccl_tests_mpi]
    mpi_home: /opt/hpcx/ompi
    sources: "{{ test_tool_sources }}"
    archives:
      nccl_tests: /var/tmp/nccl-tests.tar.gz
    jobs: 16
"""

RETURN = r"""
tools:
  description: One entry per tool.
  type: list
  elements: dict
  returned: success
  contains:
    name:
      description: Name of the tool.
      type: str
      sample: nvbandwidth
    origin:
      description: V(source), V(image), or null for an optional tool that was not found.
      type: str
      sample: source
    directory:
      description: Directory of its programs, null if it was not found.
      type: str
      sample: /opt/gpu_test_tools/versions/nvbandwidth-3f1c52a09b7e
    seconds:
      description: Duration of the build, null if nothing was built.
      type: float
      sample: 11.2
    proof:
      description:
        - Result of the proof, null if none was made. C(state) is V(measured), V(no device) (without a GPU), V(loads)
          (without a driver) or V(failed) (the GPU is busy or faulty, which is a warning), C(summary) what the program
          did.
      type: dict
      sample: {state: measured, summary: nvbandwidth -t device_local_copy -b 64}
    why:
      description: Why it comes from there.
      type: str
      sample: not built for this source, toolkit and these architectures before
report:
  description: One line per tool with its origin, directory and proof.
  type: list
  elements: str
  returned: success
  sample: ["bandwidth_test: none (it is never built; the image carries no usable bandwidthTest in /usr/local/bin)"]
sources:
  description: Names of the sources that were built, or in check mode would be.
  type: list
  elements: str
  returned: success
  sample: [nvbandwidth]
packages:
  description: Entries of O(packages) that the builds need. Only in check mode, otherwise empty.
  type: list
  elements: str
  returned: success
  sample: [cmake]
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import test_tools


def main() -> None:
    module = AnsibleModule(argument_spec=test_tools.SPEC, supports_check_mode=True)
    os.umask(0o022)  # users run the programs, whatever root's own habit is
    try:
        result = test_tools.TestToolsBuilder(module.params, module.check_mode).perform()
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"GPU test tools: {exc}")
    for text in result.pop("warnings"):
        module.warn(text)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
