#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvme_scratch
short_description: Assemble local NVMe disks into one scratch file system without losing data
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Creates a RAID 0 array of the selected local NVMe disks and a file system with its geometry, and mounts it. An
    existing array of this module is recognised by the UUID that the module gave it, whatever the kernel calls its disks
    now, and is started and mounted again.
  - A selected disk that holds anything that this module did not write, or that is in use, is refused, the finding names
    what is on it, and nothing at all is changed, unless O(wipe) names that very disk.
  - The verdict is in the check record. It is V(skipped) without a local disk and in a container. The module itself
    fails only for invalid options and on machines that cannot be read.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  state:
    description:
      - V(present) has scratch mounted at O(mount).
      - V(absent) unmounts it and stops its array. The data stays on the disks, and V(present) mounts it again.
    type: str
    default: present
    choices: [present, absent]
  destroy:
    description:
      - Erase the disks of the array with O(state=absent). All data on scratch is lost. Refused with O(state=present).
    type: bool
    default: false
  mount:
    description:
      - Directory where scratch is mounted. It must be a plain absolute path, not one of the system's such as V(/usr) or
        V(/home), and is created if it is absent.
      - A line of V(/etc/fstab) for this directory is commented out if its device does not exist or belongs to scratch.
        Any other line for it fails the check.
    type: path
    default: /mnt/resource_nvme
  name:
    description:
      - Name of the array, V(/dev/md/NAME), and of the directory below O(adopt) or O(fallback). A letter and at most 23
        of V(A-Z a-z 0-9 . _ -).
    type: str
    default: scratch
  models:
    description:
      - Select disks by the models of their controllers, which must match exactly. It is not used if O(ids) is set.
    type: list
    elements: str
    default: [Microsoft NVMe Direct Disk, Microsoft NVMe Direct Disk v2]
  ids:
    description:
      - Select these disks and no others, by serial number, wwid or name in V(/dev/disk/by-id). Kernel names such as
        V(nvme0n1) are refused, since they change between boots.
      - Unless O(count) is set, all of them must exist, see O(fewer).
    type: list
    elements: str
    default: []
  unused:
    description:
      - Select every blank local NVMe disk that is not in use, besides O(models). Other disks are left alone, which is
        no error. Remote disks of cloud providers are never selected by this option.
    type: bool
    default: false
  count:
    description:
      - Number of disks that this machine must have. For fewer see O(fewer), more are a warning.
      - The default is the number of O(ids), or without these any number.
    type: int
  fewer:
    description:
      - With fewer disks than O(count), V(refuse) makes no array and fails the check, V(allow) makes a smaller array
        with a warning. An existing whole array stays in use in either case.
    type: str
    default: refuse
    choices: [refuse, allow]
  wipe:
    description:
      - Selected disks that may be erased to make the array although they hold something, by serial number, wwid or name
        in V(/dev/disk/by-id). All data on them is lost.
      - A disk that is in use is refused nevertheless, and a disk that is part of scratch already is not erased again.
    type: list
    elements: str
    default: []
  rebuild:
    description:
      - Make an existing array of this module anew if it lost a disk, if its file system cannot be mounted, or if its
        disks, O(filesystem) or O(chunk) differ from the options. All data on scratch is lost.
      - With V(false) a broken array is a failed check, and a different one stays in use with a warning.
    type: bool
    default: false
  filesystem:
    description:
      - File system of a new array. One of the other kind that exists stays, with a warning, unless O(rebuild=true).
    type: str
    default: xfs
    choices: [xfs, ext4]
  chunk:
    description:
      - KiB of a stripe on one disk, a power of two from 4 to 65536. The default is the largest request that all of the
        disks accept, as a power of two from 128 to 512.
    type: int
  options:
    description:
      - Mount options. If one that can be read from the kernel, such as V(noatime), is missing from a mounted scratch,
        it is remounted.
    type: list
    elements: str
    default: [noatime]
  mode:
    description:
      - Mode of the root directory of scratch, which belongs to root, as four octal digits in quotes.
    type: str
    default: "1777"
  directories:
    description:
      - Directories to have on scratch. They are created again whenever scratch is made anew. Missing parents belong to
        root with mode V(0755).
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description:
          - Path relative to O(mount). A file or symbolic link at this path is not touched, and is a finding.
        type: str
        required: true
      owner:
        description:
          - User that owns the directory. An unknown user is a warning, and the directory is not created.
        type: str
        default: root
      group:
        description:
          - Group of the directory. An unknown group is a warning, and the directory is not created.
        type: str
        default: root
      mode:
        description:
          - Mode of the directory as three or four octal digits in quotes.
        type: str
        default: "1777"
  adopt:
    description:
      - Mount points of others, such as CycleCloud's. If all of the selected disks are in use at one of them, no array
        is made, and the directory O(name) there is bind-mounted at O(mount).
    type: list
    elements: path
    default: [/nvme]
  fallback:
    description:
      - Directory that is used on a machine without a selected disk. Its directory O(name) is bind-mounted at O(mount),
        and the verdict is V(skipped). On the system disk it is refused.
      - Without it such a machine has no scratch.
    type: path
  wait:
    description:
      - Seconds to wait at most for missing disks of O(count) or of an existing array. V(0) does not wait. It is not
        used with O(state=absent).
    type: float
    default: 0
  node:
    description:
      - Name of the node in the check record. The default is its short host name.
    type: str
  expect:
    description:
      - Limits for the metrics C(disks), C(members) and C(size), usually the list C(expect) of a SKU profile, see the
        lookup P(hpcai.gpu_cluster.sku_profile#lookup). Entries for other checks are ignored.
    type: list
    elements: dict
    default: []
  profile:
    description:
      - Name of the SKU profile that O(expect) comes from. It is only copied to C(context.profile) of the check record.
    type: str
  run:
    description:
      - Identifier of the run. It is only copied to C(run) of the check record.
    type: str
requirements:
  - mdadm
  - xfsprogs or e2fsprogs for O(filesystem)
notes:
  - The module needs root privileges.
  - It does not mount scratch at the next boot. The role C(nvme_scratch) installs a service that does, with
    RV(settings).
seealso:
  - module: hpcai.gpu_cluster.storage_bandwidth
  - plugin: hpcai.gpu_cluster.sku_profile
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Assemble the eight local disks of an ND96asr_v4 into scratch
  hpcai.gpu_cluster.nvme_scratch:
    count: 8
    directories:
      - path: enroot
        mode: "1777"
  become: true
  register: scratch

- name: Stop where scratch is not usable
  ansible.builtin.assert:
    that: scratch.check.verdict in ['pass', 'warn', 'skipped']
    fail_msg: "{{ scratch.check.reason }}"

- name: Erase one disk that was used for something else, by its serial number
  hpcai.gpu_cluster.nvme_scratch:
    count: 8
    wipe: [6b0f8b8c1fb500000001]
  become: true

- name: Use the blank disks of a machine that is not on Azure, with ext4
  hpcai.gpu_cluster.nvme_scratch:
    mount: /scratch
    unused: true
    filesystem: ext4
    fewer: allow
    count: 4
  become: true

- name: Erase scratch before the machine is returned
  hpcai.gpu_cluster.nvme_scratch:
    state: absent
    destroy: true
  become: true
"""

RETURN = r"""
settled:
  description: Whether the machine was as requested, so that nothing had to be done and nothing failed.
  type: bool
  returned: success
  sample: true
check:
  description: The check record.
  type: dict
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
      description: O(node), by default the short host name.
      type: str
      sample: gpu-001
    check:
      description: Name of the check, to which the entries of O(expect) refer.
      type: str
      sample: nvme_scratch
    time:
      description: Start of the check in seconds since the epoch.
      type: float
      sample: 1793610000.25
    seconds:
      description: Duration of the check in seconds, null if nothing was started.
      type: float
      sample: 3.1
    verdict:
      description:
        - V(pass), V(warn) and V(fail) say how the metrics compare with what is expected.
        - V(unjudged) means that something was measured and nothing was expected, V(skipped) that there was nothing to
          measure, V(error) that the check itself did not work, which says nothing about the hardware.
      type: str
      sample: fail
    class:
      description:
        - What a V(warn) or V(fail) is attributed to, V(hardware), V(fabric), V(config) or V(software). With V(error) it
          is V(infra), with the other verdicts null.
      type: str
      sample: config
    reason:
      description: What is wrong, or why nothing was measured, in one line. Empty where there is nothing to explain.
      type: str
      sample: "/dev/nvme2n1 (6b0f8b8c1fb500000001, Microsoft NVMe Direct Disk) is in use: mounted at /data."
    scope:
      description: UUID of the array as C(array) and ids of the selected disks as C(disks).
      type: dict
      sample: {array: "", disks: [6b0f8b8c1fb500000001, 6b0f8b8c1fb500000002]}
    metrics:
      description:
        - Measured values, each with C(name), C(value) (null if not measured), C(unit), the C(expected) limit, its
          C(source), the C(ratio) of value to limit, a C(verdict) of its own, and labels.
        - They are C(disks) (selected disks), C(members) (disks of the array) and C(size) in bytes.
      type: list
      elements: dict
      sample:
        - {name: disks, value: 8, unit: disks, expected: null, source: null, ratio: null, verdict: unjudged}
    samples:
      description: Always empty.
      type: list
      elements: dict
      sample: []
    evidence:
      description: The texts of RV(findings), one per line.
      type: str
      sample: ""
    context:
      description: Program that measured, its version and command line, O(profile), and what else explains the values.
      type: dict
      sample: {tool: mdadm, profile: Standard_ND96asr_v4, door: module, path: "", source: ""}
path:
  description: Directory where scratch is, null if there is none.
  type: str
  returned: success
  sample: /mnt/resource_nvme
source:
  description:
    - What scratch is on, V(array), V(adopted) for the mount of somebody else, V(fallback), or empty if there is none.
  type: str
  returned: success
  sample: array
disks:
  description: Ids of the selected disks. With O(state=absent) those of the array.
  type: list
  elements: str
  returned: success
  sample: [6b0f8b8c1fb500000001, 6b0f8b8c1fb500000002]
array:
  description: UUID of the array, empty if there is none.
  type: str
  returned: success
  sample: "68706361:692e6e76:5b2c1a8e:0f6f5f4c"
findings:
  description: What was noticed, with the next step for a person.
  type: list
  elements: dict
  returned: success
  contains:
    level:
      description: V(note), which changes no verdict, V(warn), V(fail) or V(error).
      type: str
    blame:
      description: Class of the finding, V(hardware), V(config), V(software) or V(infra).
      type: str
    code:
      description: Kind of the finding, such as V(foreign), V(in_use), V(missing) or V(damaged).
      type: str
    text:
      description: The finding as a sentence.
      type: str
    advice:
      description: What to do about it.
      type: str
    device:
      description: Device that it is about, if any.
      type: str
    id:
      description: Id of the disk that it is about, if any.
      type: str
    found:
      description: Content or use of that disk.
      type: str
  sample:
    - level: fail
      blame: config
      code: foreign
      text: >-
        /dev/nvme2n1 (6b0f8b8c1fb500000001, Microsoft NVMe Direct Disk) holds an LVM physical volume, which is not ours.
      advice: "If nobody needs that, allow exactly this disk to be erased: wipe: [6b0f8b8c1fb500000001]"
      device: /dev/nvme2n1
      id: 6b0f8b8c1fb500000001
      found: an LVM physical volume
commands:
  description: Steps that were done, or in check mode would be done.
  type: list
  elements: list
  returned: success
  sample:
    - [mdadm, --assemble, /dev/md/scratch, "--uuid=68706361:692e6e76:5b2c1a8e:0f6f5f4c", /dev/nvme0n1, /dev/nvme1n1]
    - [mount, -o, noatime, /dev/md/scratch, /mnt/resource_nvme]
after:
  description: Names of the systemd mount units that a service must follow which mounts scratch at boot.
  type: list
  elements: str
  returned: success
  sample: [mnt.mount, nvme.mount]
settings:
  description:
    - What the boot program of the role C(nvme_scratch) reads, with the C(request) (without O(wipe)), C(adopted),
      C(wait), C(expect) and C(profile).
  type: dict
  returned: success
  sample:
    request: {name: scratch, mount: /mnt/resource_nvme, count: 8}
    adopted: false
    wait: 60.0
    expect: []
    profile: Standard_ND96asr_v4
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.apply import ApplyError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.module import SPEC, perform


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (ApplyError, OSError, ValueError) as exc:
        module.fail_json(msg=f"Cannot plan the NVMe scratch: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
