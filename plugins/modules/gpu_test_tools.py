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
  - Every tool comes from the first of O(origins) that can provide it. A build is kept in a directory of its own under
    O(prefix), with all that decided what it is, and made again only when one of these changes.
  - The links in C(bin) move to another build only after that was proved. Programs load without missing libraries and
    measure something on a GPU, or stop for want of a GPU and of nothing else where there is none.
  - In check mode the answer is the plan, with RV(sources) that a build would need.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  prefix: {type: path, default: /opt/gpu_test_tools, description: Where the tools are installed.}
  tools:
    description:
      - V(nccl_tests_mpi) gets the suffix C(_mpi) in C(bin). V(bandwidth_test) is only ever found, and may be missing.
    type: list
    elements: str
    choices: [nccl_tests, nccl_tests_mpi, nvbandwidth, bandwidth_test]
    default: [nccl_tests, nccl_tests_mpi, nvbandwidth, bandwidth_test]
  origins:
    description: Where tools come from, in order of preference. V(image) takes what the host already has.
    type: list
    elements: str
    choices: [source, image]
    default: [source, image]
  sources:
    description:
      - For V(nccl_tests) and V(nvbandwidth) either C(git) and C(commit), a full commit id, or C(archive) and C(sha256).
    type: dict
    default: {}
  archives: {type: dict, default: {}, description: Files on this host with the sources that are to be built.}
  architectures:
    {type: list, elements: str, default: [], description: Compute capabilities such as V(8.0); empty for its own GPUs.}
  cuda_home: {type: path, description: "CUDA toolkit; without it C(/usr/local/cuda), then the C(nvcc) on E(PATH)."}
  nccl_home: {type: path, description: "Directory of NCCL's C(include) and C(lib); without it CUDA's or the system's."}
  mpi_home: {type: path, description: "Directory of an MPI's C(include) and C(lib); without it that of C(mpicc)."}
  image_dirs: {type: list, elements: path, default: [], description: Directories searched before the usual ones.}
  packages:
    {type: list, elements: str, default: [], description: "In check mode, packages whose content is not missing."}
  build_dir: {type: path, default: /var/tmp, description: Where builds happen; what they leave is removed.}
  environment: {type: dict, default: {}, description: Variables for builds and proofs.}
  jobs: {type: int, description: "Compilers that run at a time; the default is one per CPU."}
  timeout: {type: float, default: 3600, description: Seconds for one command of a build.}
"""

EXAMPLES = r"""
- name: Build nvbandwidth for H100
  hpcai.gpu_cluster.gpu_test_tools:
    tools: [nvbandwidth]
    architectures: ["9.0"]
    sources:
      nvbandwidth: {git: "https://github.com/NVIDIA/nvbandwidth.git", commit: 66746a3bef61c8c2e12ab34955310da70b9e38cb}
    archives:
      nvbandwidth: /var/tmp/nvbandwidth.tar.gz # made by git archive
"""

RETURN = r"""
tools:
  description: Where each tool comes from, and what its proof said.
  type: list
  elements: dict
  returned: success
  sample:
    - name: nvbandwidth
      origin: source
      directory: /opt/gpu_test_tools/versions/nvbandwidth-3f1c52a09b7e
      seconds: 11.2
      proof: {state: measured, said: nvbandwidth -t device_local_copy -b 64}
      why: not built for this source, toolkit and these architectures before
report: {type: list, elements: str, returned: success, description: The same in one line per tool.}
sources: {type: list, elements: str, returned: success, description: Sources that are built., sample: [nvbandwidth]}
packages: {type: list, elements: str, returned: success, description: Packages that builds need., sample: [cmake]}
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import tools


def main() -> None:
    module = AnsibleModule(argument_spec=tools.SPEC, supports_check_mode=True)
    os.umask(0o022)  # users run the programs, whatever root's own habit is
    try:
        worker = tools.Worker(module.params, module.check_mode)
        result = worker.run()
    except (ValueError, OSError) as exc:
        module.fail_json(msg=f"GPU test tools: {exc}")
    for text in worker.warnings:
        module.warn(text)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
