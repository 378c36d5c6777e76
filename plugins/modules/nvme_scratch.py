#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvme_scratch
short_description: Local NVMe disks as one scratch filesystem that never costs anybody data
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Makes a RAID 0 of the chosen local NVMe disks, a filesystem with its geometry, and mounts it. What is there already
    is found again by the UUID that this module gives its arrays, whatever the kernel calls it now.
  - A chosen disk that holds anything that this module did not make, or is in use, is refused with what was found, and
    nothing at all is done, unless O(wipe) names that very disk. The verdict is in the check record; the module itself
    fails only for options that make no sense and machines that cannot be read.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
  idempotent: {support: full}
options:
  state: {type: str, default: present, choices: [present, absent], description: "V(absent) unmounts it and stops its
    array. Data stays on the disks, and V(present) brings it back."}
  destroy: {type: bool, default: false, description: "With O(state=absent), erase the disks of the array, too."}
  mount: {type: path, default: /mnt/resource_nvme, description: Where it is mounted.}
  name: {type: str, default: scratch, description: "Name of the array, C(/dev/md/NAME)."}
  models: {type: list, elements: str, default: [Microsoft NVMe Direct Disk, Microsoft NVMe Direct Disk v2],
    description: Models of controllers whose disks are chosen.}
  ids: {type: list, elements: str, default: [], description: "Serial numbers, wwids or names in C(/dev/disk/by-id) of
    the disks to choose, instead of O(models)."}
  unused: {type: bool, default: false, description: "Choose every blank local NVMe disk; leave others alone."}
  count: {type: int, description: Disks that this machine has to have.}
  fewer: {type: str, default: refuse, choices: [refuse, allow], description: "With fewer than O(count), make nothing
    or a smaller array."}
  wipe: {type: list, elements: str, default: [], description: "Disks to erase first, by serial number, wwid or name in
    C(/dev/disk/by-id). A disk in use is refused all the same."}
  rebuild: {type: bool, default: false, description: "Make an array of this module anew that lost a disk, cannot be
    mounted, or is not as asked for in its disks, O(filesystem) or O(chunk). All that is on it is lost."}
  filesystem: {type: str, default: xfs, choices: [xfs, ext4], description: "What to make; one that
    exists stays, without O(rebuild)."}
  chunk: {type: int, description: "KiB of a stripe on one disk, a power of two; by default what disks take at once."}
  options: {type: list, elements: str, default: [noatime], description: Mount options.}
  mode: {type: str, default: "1777", description: Mode of the filesystem's root.}
  directories: {type: list, elements: dict, default: [], description: Directories below O(mount), suboptions: {path: {
    type: str, required: true, description: Relative to the mount.}, owner: {type: str, default: root, description: Its
    user.}, group: {type: str, default: root, description: Its group.}, mode: {type: str, default: "1777",
    description: Its mode.}}}
  adopt: {type: list, elements: path, default: [/nvme], description: "Where others may have mounted all of the chosen
    disks; a directory there is used then, bind-mounted at O(mount)."}
  fallback:
    {type: path, description: "Directory, not on the system disk, that stands in on a machine without a chosen disk."}
  wait: {type: float, default: 0, description: Seconds that missing disks may take to appear.}
  node: {type: str, description: The node's name for the record; by default the host's short name.}
  expect:
    {type: list, elements: dict, default: [], description: Expectations of a profile (see lookup sku_profile).}
  profile: {type: str, description: "Name of that profile, for the record."}
  run: {type: str, description: "Identifier of the run, for the record."}
"""

EXAMPLES = r"""
- name: Have scratch on the eight local disks
  hpcai.gpu_cluster.nvme_scratch:
    count: 8

- name: Erase one disk that was used for something else, by its serial number
  hpcai.gpu_cluster.nvme_scratch:
    wipe: [6b0f8b8c1fb500000001]
"""

RETURN = r"""
settled:
  description: Whether everything was as wanted, so that another run would do nothing.
  type: bool
  returned: success
check: {type: dict, returned: success, description: The check record.}
path: {type: str, returned: success, sample: /mnt/resource_nvme, description: Where scratch is; null for nowhere.}
source: {type: str, returned: success, sample: array, description: "V(array), V(adopted), V(fallback) or empty."}
disks: {type: list, elements: str, returned: success, sample: [S1], description: Ids of the chosen disks.}
array: {type: str, returned: success, sample: "68706361:692e6e76:5b2c1a8e:0f6f5f4c", description: UUID of the array.}
findings: {type: list, elements: dict, returned: success, sample: [{level: fail, code: foreign, device: /dev/nvme2n1,
  id: S3, found: LVM2_member, text: "S3 holds an LVM volume", advice: Choose others.}], description: "What was seen."}
commands: {type: list, elements: list, returned: success, sample: [[mount, /dev/md/scratch, /mnt/resource_nvme]],
  description: "What was done, or in check mode would be."}
after: {type: list, elements: str, returned: success, sample: [mnt.mount], description: Units to start after at boot.}
settings: {type: dict, returned: success, description: "What the boot program reads to want the same."}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.apply_files import ApplyError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.scratch.task import SPEC, perform


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (ApplyError, OSError, ValueError) as exc:
        module.fail_json(msg=f"Cannot plan the NVMe scratch: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
