#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_info
short_description: Read which NVIDIA driver a host has, who manages it and whether its parts agree
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Reads the driver in the kernel and on the disk, DKMS, the packages, the fabric manager, the GPUs on the PCI bus and
    who uses them. It needs no GPU, no driver and no C(nvidia-smi), and changes nothing.
  - RV(refusals) has the reasons why M(hpcai.gpu_cluster.nvidia_driver) would leave the driver alone, before any
    repository is asked.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.nvidia_driver]
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  proof:
    description:
      - Whether RV(faults) says what disagrees. It is meant for after the reboot.
    type: bool
    default: false
notes:
  - The module needs root privileges, to see the files that processes of others have open.
seealso:
  - module: hpcai.gpu_cluster.nvidia_driver
  - module: hpcai.gpu_cluster.gpu_info
"""
EXAMPLES = r"""
- name: See who manages the driver
  hpcai.gpu_cluster.nvidia_driver_info:
    version: "580"
  become: true
  register: driver

- name: Prove a driver after the reboot
  hpcai.gpu_cluster.nvidia_driver_info:
    version: "580.105.08"
    fabric_manager: true
    proof: true
  become: true
  register: driver
  failed_when: driver.faults | length > 0

- name: See whether an Azure HPC image could get another driver
  hpcai.gpu_cluster.nvidia_driver_info:
    version: "580"
    take_over: [azure_hpc, packages]
  become: true
"""
RETURN = r"""
flavour:
  description: Kind of the kernel modules that the host gets, empty where that is refused.
  type: str
  returned: success
  sample: open
refusals:
  description: Why the driver is left alone.
  type: list
  elements: str
  returned: success
  sample: ["/etc/dgx-release is there: DGX OS brings and updates the driver. If its driver is to be replaced all the
    same, add dgx_os to nvidia_driver_take_over"]
faults:
  description: What disagrees, with O(proof=true).
  type: list
  elements: str
  returned: success
  sample: ["the fabric manager is 580.95.05, and driver 580.105.08 is loaded: it refuses to start"]
gpus:
  description: The GPUs on the PCI bus, whether a driver knows them or not.
  type: list
  elements: dict
  returned: success
  contains:
    address:
      description: PCI address.
      type: str
    device:
      description: PCI device id.
      type: str
    generation:
      description: Generation by that id, empty for an unknown one.
      type: str
  sample:
    - {address: "0000:18:00.0", device: "2330", generation: Hopper}
nvswitches:
  description: NVSwitches on the PCI bus. Those of HGX B200 and later are not there.
  type: int
  returned: success
  sample: 4
kernel:
  description: The running kernel.
  type: str
  returned: success
  sample: 6.8.0-85-generic
loaded:
  description: C(version) and C(flavour) of the modules in the kernel, empty without any.
  type: dict
  returned: success
  sample: {version: 580.95.05, flavour: open}
on_disk:
  description: C(version) and C(flavour) of the modules that the running kernel would load, and the package of their
    file, or C(dkms), as C(owner).
  type: dict
  returned: success
  sample: {version: 580.105.08, flavour: open, owner: dkms}
library:
  description: Version of libnvidia-ml.
  type: str
  returned: success
  sample: 580.105.08
fabric_manager:
  description: Version that the fabric manager's program says it is, empty without it. A package can bring another one
    than its own version says.
  type: str
  returned: success
  sample: 580.105.08
packages:
  description: Packages of the driver and the fabric manager with their versions.
  type: dict
  returned: success
  sample: {nvidia-dkms-580-open: 580.105.08-1, libnvidia-compute-580: 580.105.08-1}
held:
  description: Those that are held, by whomever.
  type: list
  elements: str
  returned: success
  sample: [nvidia-dkms-580-open]
users:
  description: Processes that have a GPU open and steps of Slurm's jobs. Daemons of the driver, DCGM among them, are
    none.
  type: list
  elements: dict
  returned: success
  sample:
    - {pid: 4711, program: python3}
reboot_required:
  description: Whether only a reboot brings the installed driver into use.
  type: bool
  returned: success
  sample: true
reboot_reasons:
  description: Why.
  type: list
  elements: str
  returned: success
  sample: ["the kernel has driver 580.95.05 loaded, and 580.105.08 is installed"]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import RecordError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.model import DriverError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.module import INFO_SPEC, inform


def main() -> None:
    module = AnsibleModule(argument_spec=INFO_SPEC, supports_check_mode=True)
    try:
        result = inform(module.params)
    except (DriverError, RecordError) as exc:
        module.fail_json(msg=f"NVIDIA driver: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
