# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of modules that return check records; the same as in module_utils/_checks.py."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  expect:
    description:
      - Limits for the measured values, usually the list C(expect) of a SKU profile, see the lookup
        P(hpcai.gpu_cluster.sku_profile#lookup). Entries for other checks are ignored, so that the whole list of a
        profile can be given to every module.
      - Each entry needs C(check), C(metric), C(op) (V(>=), V(<=), V(>), V(<) or V(==)), C(value), C(unit) and
        C(source). C(nodes) or C(min_nodes) restricts it to measurements over exactly, or at least, so many nodes.
        C(verdict=warn) makes a miss a warning instead of a failure. Every other key, such as C(collective), C(size) or
        C(path), is a label that the metric must have.
      - A metric that is expected but was not measured is an error. Metrics without an entry are V(unjudged), which is
        never a pass.
      - The module fails for an entry that lacks one of these keys or whose unit is not that of the metric.
    type: list
    elements: dict
    default: []
  profile:
    description:
      - Name of the SKU profile that O(expect) comes from. It is only copied to C(context.profile) of the check record.
    type: str
  run:
    description:
      - Identifier of the run that the measurement belongs to. It is only copied to C(run) of the check record.
    type: str
"""

    NODE = r"""
options:
  name:
    description:
      - Name of the node in the check record.
      - The default is the name of the node that is measured, for a local measurement the short host name. A record
        about several nodes has no node name, and this option is not used then.
    type: str
"""

    SYSFS = r"""
options:
  sysfs:
    description:
      - Directory where sysfs is mounted. Another directory than V(/sys) is meant for a copy of another machine's sysfs.
    type: path
    default: /sys
"""

    GPUS = r"""
options:
  share_gpus:
    description:
      - Measure although other programs compute on the GPUs. The measurement disturbs them, and its values say nothing
        about the GPUs, so that no limit of O(expect) applies. The check record names the programs.
      - With V(false) nothing is measured while programs compute on one of the GPUs, and the verdict is V(skipped). If
        such a program starts during the measurement, no limit of O(expect) applies.
      - Programs are found by C(nvidia-smi) on the nodes, with O(launcher=local) and O(launcher=mpirun). Where
        C(nvidia-smi) is missing or does not answer, GPUs count as unused. With O(launcher=srun) Slurm allocates whole
        nodes, and C(nvidia-smi) is not queried.
    type: bool
    default: false
"""
