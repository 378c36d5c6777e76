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
  - Writes files with C(fio), reads them back, and judges the bandwidth of all jobs together in GB/s (10^9 bytes).
  - Existing data is not touched. The files are written in a new directory below each path that only its owner can read,
    and that is removed afterwards, also when the measurement fails. Block devices are refused, and so are sizes that
    would take more than 10 % of the space available and leave less than 10 % of the file system free.
  - Only the part of a file that was really written is read, so that holes in a file do not count as bandwidth.
  - What could not be measured is V(error), and the reason names the cause and the option to change. An input/output
    error is V(fail). In check mode the verdict is V(skipped). The module itself fails only for invalid options.
  - The only privilege that is needed is to create a directory below the path.
extends_documentation_fragment:
  - hpcai.gpu_cluster.attributes
  - hpcai.gpu_cluster.measure
  - hpcai.gpu_cluster.measure.node
attributes:
  check_mode:
    support: partial
    details:
      - In check mode nothing is written or measured, and the verdict is V(skipped).
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  paths:
    description:
      - Absolute paths of the directories to measure, one after the other and each at most once. Each needs
        O(size) x O(jobs) free bytes beyond 10 % of its file system, or ten times as many free bytes.
    type: list
    elements: path
    required: true
  operations:
    description:
      - Operations to measure. They run in the order V(write), V(read), V(randwrite), V(randread).
      - Files are always written first. Without V(write) in this list that write is not returned.
    type: list
    elements: str
    choices: [write, read, randwrite, randread]
    default: [write, read]
  block_size:
    description:
      - Bytes of one operation, a multiple of 512. The suffixes C(K), C(M), C(G) and C(T) are powers of 1024.
    type: str
    default: 1M
  size:
    description:
      - Bytes of the file of each job, a multiple of O(block_size), with the same suffixes.
    type: str
    default: 4G
  jobs:
    description:
      - Number of processes that work at the same time, each on a file of its own.
    type: int
    default: 4
  iodepth:
    description:
      - Operations in flight per job. Synchronous engines such as V(psync) always have one.
    type: int
    default: 255
  runtime:
    description:
      - Seconds of each operation. When a job reaches the end of its file before that, it starts again at its beginning.
    type: int
    default: 30
  direct:
    description:
      - Bypass the page cache (O_DIRECT). On a file system that does not support it the verdict is V(error), and the
        reason recommends V(false).
      - With V(false) reads may come from the memory of the machine. Writes count until the data is on the disk.
    type: bool
    default: true
  ioengine:
    description:
      - Engine of C(fio), such as V(libaio), V(io_uring) or V(psync). V(psync) works on every file system, with one
        operation in flight per job.
    type: str
    default: libaio
  fio:
    description:
      - Path of C(fio), or the directory that holds it. By default E(PATH) is searched. If there is none, the verdict is
        V(error).
    type: path
  timeout:
    description:
      - Seconds for each run of C(fio), one for each operation. It must be more than O(runtime).
    type: float
    default: 600
requirements:
  - fio
seealso:
  - module: hpcai.gpu_cluster.nvme_scratch
  - module: hpcai.gpu_cluster.shared_mount
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Measure the local NVMe disks against the profile of the machine type
  hpcai.gpu_cluster.storage_bandwidth:
    paths: [/mnt/resource_nvme]
    expect: "{{ lookup('hpcai.gpu_cluster.sku_profile', 'Standard_ND96asr_v4').expect }}"
    profile: Standard_ND96asr_v4

- name: Measure a shared file system without direct access, as the user of the jobs
  hpcai.gpu_cluster.storage_bandwidth:
    paths: [/shared/home/anna]
    size: 1G
    direct: false
    ioengine: psync
  become: true
  become_user: anna

- name: Measure random reads of small blocks on two file systems
  hpcai.gpu_cluster.storage_bandwidth:
    paths: [/mnt/resource_nvme, /shared/data]
    operations: [randread]
    block_size: 4K
    iodepth: 64
    runtime: 60

- name: Require 2 GB/s of writes to the shared file system
  hpcai.gpu_cluster.storage_bandwidth:
    paths: [/shared/checkpoints]
    operations: [write]
    jobs: 16
    expect:
      - check: storage_bandwidth
        metric: write
        op: ">="
        value: 2
        unit: GB/s
        source: a checkpoint of 240 GB in two minutes
"""

RETURN = r"""
checks:
  description: One check record about all paths.
  type: list
  elements: dict
  returned: success
  contains:
    schema:
      description: Version of the format of the record.
      type: int
      sample: 1
    run:
      description: Value of O(run), null without it.
      type: str
      sample: nightly-2026-11-02
    node:
      description: O(name), by default the short host name.
      type: str
      sample: gpu-001
    check:
      description: Name of the check, to which the entries of O(expect) refer.
      type: str
      sample: storage_bandwidth
    time:
      description: Start of the check in seconds since the epoch.
      type: float
      sample: 1793610000.25
    seconds:
      description: Duration of the check in seconds, null if nothing was started.
      type: float
      sample: 64.3
    verdict:
      description:
        - V(pass), V(warn) and V(fail) say how the metrics compare with what is expected.
        - V(unjudged) means that something was measured and nothing was expected, V(skipped) that there was nothing to
          measure, V(error) that the check itself did not work, which says nothing about the hardware.
      type: str
      sample: warn
    class:
      description:
        - What a V(warn) or V(fail) is attributed to, V(hardware), V(fabric), V(config) or V(software). With V(error) it
          is V(infra), with the other verdicts null.
      type: str
      sample: hardware
    reason:
      description: What is wrong, or why nothing was measured, in one line. Empty where there is nothing to explain.
      type: str
      sample: "read (path=/mnt/resource_nvme): 5.2 GB/s, expected >= 8"
    scope:
      description: Paths at fault as C(path).
      type: dict
      sample: {path: [/mnt/resource_nvme]}
    metrics:
      description:
        - Measured values, each with C(name), C(value) (null if not measured), C(unit), the C(expected) limit, its
          C(source), the C(ratio) of value to limit, a C(verdict) of its own, and labels.
        - Each is named like its operation, in GB/s, with the label C(path).
      type: list
      elements: dict
      sample:
        - name: read
          value: 5.2
          unit: GB/s
          path: /mnt/resource_nvme
          expected: ">= 8"
          source: eight NVMe disks in RAID 0
          ratio: 0.65
          verdict: warn
    samples:
      description: The entries of RV(results).
      type: list
      elements: dict
      sample: [{path: /mnt/resource_nvme, operation: read, bandwidth: 5.2, iops: 4959.1, problem: null}]
    evidence:
      description: What C(fio) printed about runs with a problem.
      type: str
      sample: ""
    context:
      description:
        - Program that measured, its version and command line, O(profile), and what else explains the values.
        - Where no program is installed, C(missing) has the names that were looked for.
      type: dict
      sample:
        tool: fio
        version: "3.28"
        profile: Standard_ND96asr_v4
        file_systems: {/mnt/resource_nvme: {type: xfs, device: /dev/md127, array: raid0, members: 8, problems: []}}
results:
  description: One entry per path and operation.
  type: list
  elements: dict
  returned: success
  contains:
    path:
      description: Entry of O(paths).
      type: str
      sample: /mnt/resource_nvme
    operation:
      description: Entry of O(operations).
      type: str
      sample: read
    bandwidth:
      description: GB/s of all jobs together, null if it could not be measured.
      type: float
      sample: 9.31
    iops:
      description: Operations per second of all jobs together.
      type: float
      sample: 8878.7
    bytes:
      description: Bytes that all jobs transferred.
      type: int
      sample: 279300000000
    seconds:
      description: Duration of the slowest job.
      type: float
      sample: 30.0
    latency_us:
      description: Mean latency of the slowest job in microseconds.
      type: float
      sample: 114880.1
    percentiles_us:
      description: Percentiles of the latency of the slowest job in microseconds.
      type: dict
      sample: {"50": 112721.9, "99": 162529.3, "99.9": 170917.9}
    jobs:
      description: Number of jobs that have a result.
      type: int
      sample: 4
    notes:
      description: Remarks that C(fio) printed.
      type: list
      elements: str
      sample: []
    problem:
      description: Why there is no value, null otherwise.
      type: str
      sample: null
argv:
  description: Command line of each path and operation.
  type: list
  elements: dict
  returned: success
  sample:
    - {path: /mnt/resource_nvme, operation: read, argv: [/usr/bin/fio, --name=hpcai, --rw=read, --bs=1048576]}
environment:
  description: Environment variables that were set. There are none.
  type: dict
  returned: success
  sample: {}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.storage import bandwidth


def main() -> None:
    module = AnsibleModule(argument_spec=bandwidth.SPEC, supports_check_mode=True)
    try:
        result = bandwidth.perform(module.params, module.check_mode)
    except ValueError as exc:
        module.fail_json(msg=f"Cannot measure storage: {exc}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
