#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver
short_description: Install NVIDIA's driver and its fabric manager in one version
version_added: 0.1.0
author: [hpcai.gpu_cluster authors (@hpcai)]
description:
  - Takes the version that O(version) names from what is installed or what the repositories offer, and in which all
    parts of the driver can be had, the fabric manager included, and installs them in one transaction.
  - A driver that somebody else manages is refused (O(take_over)), and so is a change while a process uses a GPU or a
    step of a Slurm job is on the host. An apt that would remove packages of others is refused as well.
  - No daemon is started or stopped meanwhile, no module is loaded or unloaded, and nothing is rebooted.
    RV(reboot_required) says whether the driver is in use only after a reboot.
  - Afterwards the modules of the running kernel are read again. The module fails where DKMS built none.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes, hpcai.gpu_cluster.nvidia_driver]
attributes:
  check_mode:
    support: full
    details: Package lists are not fetched.
  diff_mode:
    support: full
  idempotent:
    support: full
    details: O(state=downloaded) never reports a change.
options:
  state:
    description:
      - V(planned) changes nothing but the package lists, and returns in RV(problem) what stands in the way instead of
        failing.
      - V(downloaded) fetches the packages, also below jobs.
      - V(present) installs them.
    type: str
    choices: [planned, downloaded, present]
    default: present
  manager:
    description:
      - The package manager of the host.
    type: str
    choices: [apt, dnf]
    required: true
  catalog:
    description:
      - What the parts of the driver are called in the repository. Each part is a list of names of which the first one
        that is offered counts. C({branch}) in a name stands for the branch.
    type: dict
    required: true
    suboptions:
      open:
        description:
          - Parts of the driver with the open kernel modules only.
        type: list
        elements: list
        required: true
      proprietary:
        description:
          - Parts of the driver with the proprietary ones only.
        type: list
        elements: list
        required: true
      common:
        description:
          - Parts of both.
        type: list
        elements: list
        default: []
      optional:
        description:
          - Parts that come along where they are offered in the chosen version.
        type: list
        elements: list
        default: []
      fabric_manager:
        description:
          - Parts for O(fabric_manager=true). A repository without them is refused then.
        type: list
        elements: list
        default: []
      headers:
        description:
          - Packages with the headers of the running kernel, C({kernel}), which DKMS needs. They are installed where
            C(/lib/modules/<kernel>/build) is missing.
        type: list
        elements: str
        default: []
      streams:
        description:
          - Streams of dnf's module nvidia-driver, by the keys V(open) and V(proprietary).
        type: dict
        default: {}
  lists_max_age:
    description:
      - Package lists that are older than this many seconds, or than a file of sources, are fetched again. V(0) always
        fetches them and V(-1) never.
    type: int
    default: 86400
  timeout:
    description:
      - Seconds that one command of the package manager may take. DKMS compiles within them.
    type: float
    default: 3600
notes:
  - The module needs root privileges. It holds no packages of apt, which M(hpcai.gpu_cluster.package_hold) does; those
    of dnf it locks by C(dnf versionlock).
  - It has never met a GPU or NVIDIA's repositories in the tests of the collection. The README of the role
    P(hpcai.gpu_cluster.nvidia_driver#role) says what was proved how.
seealso:
  - module: hpcai.gpu_cluster.nvidia_driver_info
  - module: hpcai.gpu_cluster.package_hold
  - module: hpcai.gpu_cluster.package_repository
"""
EXAMPLES = r"""
- name: Install a driver with the open modules, and its fabric manager
  hpcai.gpu_cluster.nvidia_driver:
    version: "580.105.08"
    fabric_manager: true
    manager: apt
    catalog: &catalog
      open: [["nvidia-kernel-open-dkms"]]
      proprietary: [["nvidia-kernel-dkms"]]
      common: [["nvidia-driver-cuda"]]
      fabric_manager: [["nvidia-fabricmanager"]]
      headers: ["linux-headers-{kernel}"]
  become: true
  register: driver

- name: See which version of the branch it would be
  hpcai.gpu_cluster.nvidia_driver:
    version: "580"
    state: planned
    manager: apt
    catalog: *catalog
  become: true

- name: Fetch the packages before the maintenance
  hpcai.gpu_cluster.nvidia_driver:
    version: "580.105.08"
    state: downloaded
    manager: apt
    catalog: *catalog
  become: true
"""
RETURN = r"""
version:
  description: Version of the driver that was chosen, empty where none could be.
  type: str
  returned: success
  sample: 580.105.08
flavour:
  description: Kind of its kernel modules.
  type: str
  returned: success
  sample: open
changes:
  description: Whether packages of the driver have to change, or had to.
  type: bool
  returned: success
  sample: true
install:
  description: What the package manager was, or would be, told to install or keep.
  type: list
  elements: str
  returned: success
  sample: [nvidia-driver-cuda=580.105.08-1, nvidia-kernel-open-dkms=580.105.08-1]
moved:
  description: All packages that are added or change, with C(name), C(before) and C(after).
  type: list
  elements: dict
  returned: success
  sample:
    - {name: nvidia-kernel-open-dkms, before: 580.95.05-1, after: 580.105.08-1}
removed:
  description: Packages that go. They are the driver's.
  type: list
  elements: str
  returned: success
  sample: []
problem:
  description: What stands in the way with O(state=planned). Empty otherwise.
  type: str
  returned: success
  sample: ""
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

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import FileError, RecordError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.model import DriverError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.module import SPEC, perform


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        result = perform(module.params, module.check_mode)
    except (DriverError, FileError, RecordError) as exc:
        module.fail_json(msg=f"NVIDIA driver: {exc}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
