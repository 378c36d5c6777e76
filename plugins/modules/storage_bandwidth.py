#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: storage_bandwidth
short_description: Measure and judge the bandwidth of file systems with fio
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Writes files with C(fio), reads them back, and judges the bandwidth of all jobs together, in GB/s (decimal).
  - Nothing is destroyed. The files are in a new directory below the path, readable by nobody else, which is removed
    also when the measurement fails. Block devices are refused, and so are sizes that would leave less than 10 % of
    the file system free.
  - Only what was really written is read, so that no hole in a file counts as bandwidth.
  - What could not be measured is V(error), and the reason says what to change; check mode is V(skipped). An
    input/output error is V(fail). The module itself fails only for options that make no sense.
  - The user needs no rights but to write below the path.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.node
attributes:
  check_mode: {support: partial, details: [It measures nothing then and says so.]}
  diff_mode: {support: none}
  idempotent: {support: full}
options:
  paths: {type: list, elements: path, required: true, description: "Directories to measure, one after the other."}
  operations:
    {type: list, elements: str, choices: [write, read, randwrite, randread], default: [write, read],
     description: "What to measure. Files are always written first, as long as O(runtime) says."}
  block_size: {type: str, default: 1M, description: "Bytes of one operation; C(K) is 1024 bytes, C(M) and C(G) follow."}
  size: {type: str, default: 4G, description: Bytes of the file of each job.}
  jobs: {type: int, default: 4, description: Processes that work side by side.}
  iodepth: {type: int, default: 255, description: "Operations in flight per job, for engines that can."}
  runtime: {type: int, default: 30, description: Seconds of each operation. A file is written again if time is left.}
  direct:
    {type: bool, default: true, description: "Bypass the page cache. Without it reads may come from memory. Some file
      systems cannot; then the check is an error that says so."}
  ioengine:
    {type: str, default: libaio, description: "How fio does it. V(psync) works everywhere, but O(iodepth) is 1 then."}
  fio: {type: path, description: "Path of fio, or its directory. Without it E(PATH) is searched."}
  timeout: {type: float, default: 600, description: "Seconds for each run of fio, which must be more than O(runtime)."}
"""

EXAMPLES = r"""
- name: Measure the local disks
  hpcai.gpu_cluster.storage_bandwidth:
    paths: [/scratch]
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"

- name: Measure a shared file system that has no direct access, as one user
  hpcai.gpu_cluster.storage_bandwidth:
    paths: [/shared/home/anna]
    size: 1G
    direct: false
    ioengine: psync
  become: true
  become_user: anna
"""

RETURN = r"""
checks:
  type: list
  elements: dict
  returned: success
  description: One check record with the metrics C(write) and C(read) of every path.
  sample:
    - {schema: 1, node: gpu-001, check: storage_bandwidth, verdict: pass, reason: "", metrics: [{name: read,
       value: 9.31, unit: GB/s, path: /scratch, expected: ">= 8", verdict: pass}]}
results:
  type: list
  elements: dict
  returned: success
  description:
    - One entry per path and operation, bandwidth in GB/s. Latencies in microseconds are those of the slowest job.
  sample:
    - {path: /scratch, operation: read, bandwidth: 9.31, iops: 8878.7, bytes: 279300000000, seconds: 30.0,
       latency_us: 114880.1, percentiles_us: {"50": 112721.9, "99": 162529.3, "99.9": 170917.9}, jobs: 4,
       notes: [], problem: null}
argv:
  type: list
  elements: dict
  returned: success
  description: Command line per path and operation.
  sample: [{path: /scratch, operation: read, argv: [/usr/bin/fio, --name=hpcai, --rw=read]}]
environment: {type: dict, returned: success, description: "Variables that were set, which are none.", sample: {}}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage import bandwidth, request


def main() -> None:
    module = AnsibleModule(argument_spec=request.SPEC, supports_check_mode=True)
    try:
        result = bandwidth.perform(module.params, module.check_mode)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot measure storage: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
