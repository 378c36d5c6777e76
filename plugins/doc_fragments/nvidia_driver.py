# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the modules for NVIDIA's driver; the same as INFO_SPEC of module_utils/driver/module.py, but for proof."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  version:
    description:
      - Driver to have, as a branch (V(580)) or one version (V(580.95.05)), in quotes. What is installed and fits stays,
        so a branch brings no later updates.
    type: str
    required: true
  flavour:
    description:
      - Kind of the kernel modules. V(auto) takes what the GPUs need, by their PCI device ids, and else V(open), the
        default of NVIDIA since branch 560.
      - Maxwell, Pascal and Volta have V(proprietary) modules only, and 580 is their last branch. Blackwell and Grace
        Hopper have V(open) ones only, as have all GPUs from branch 620 on. What cannot work is refused.
    type: str
    choices: [auto, open, proprietary]
    default: auto
  fabric_manager:
    description:
      - Whether the GPUs are on NVSwitches and need the fabric manager, in exactly the version of the driver.
    type: bool
    default: false
  take_over:
    description:
      - Kinds of managers whose driver may be replaced all the same.
      - V(azure_hpc) is an Azure HPC image (C(/opt/azurehpc)), V(dgx_os) DGX OS (C(/etc/dgx-release)), V(packages)
        driver packages of another version that the module did not install, V(held) packages that an administrator
        holds.
      - A driver that NVIDIA's C(.run) file installed, one of no package, and one in a container are never replaced.
    type: list
    elements: str
    choices: [azure_hpc, dgx_os, packages, held]
    default: []
  mok_enrolled:
    description:
      - Says that with Secure Boot the key with which DKMS signs is enrolled. Without it a host with Secure Boot and no
        loaded driver is refused.
    type: bool
    default: false
  record:
    description:
      - File that keeps which packages the module installed.
    type: path
    default: /var/lib/hpcai/nvidia_driver.json
  hold_records:
    description:
      - Files in which M(hpcai.gpu_cluster.package_hold) and M(hpcai.gpu_cluster.node_tuning) keep which packages they
        held. All other holds are an administrator's.
    type: list
    elements: path
    default:
      - /var/lib/hpcai/nvidia_driver_hold.json
      - /var/lib/hpcai/package_hold.json
      - /var/lib/hpcai/node_tuning.json
  root:
    description:
      - Directory below which C(/proc), C(/sys), C(/etc) and C(/usr) are looked at, for tests. The record has a path of
        its own, and programs are those of E(PATH).
    type: path
    default: /
"""
