# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of modules that return check records; the same as in module_utils/_measure.py."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  expect:
    description: Expectations of a profile, see the lookup P(hpcai.gpu_cluster.sku_profile#lookup).
    type: list
    elements: dict
    default: []
  profile:
    description: Name of that profile, for the record.
    type: str
  run:
    description: Identifier of the run, for the record.
    type: str
"""

    NODE = r"""
options:
  name:
    description: Name of the node for the record, if it is a single one. The default is its short host name.
    type: str
"""

    SYSFS = r"""
options:
  sysfs:
    description: Another directory serves for a copy of another machine's sysfs.
    type: path
    default: /sys
"""

    GPUS = r"""
options:
  share_gpus:
    description:
      - Measure although programs compute on the GPUs. This disturbs them, and the numbers say nothing about the GPUs,
        so they are held against no limit; the record names the programs.
      - Without it such GPUs are not measured, with the verdict V(skipped). Limits do not apply either to what was
        measured while a program came.
      - C(nvidia-smi) tells of programs with O(launcher) V(local) and V(mpirun). Where there is none, nobody looks.
    type: bool
    default: false
"""
