# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The attributes that every module of this collection states."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and tell what it would change, without changing it.
  diff_mode:
    description: Returns what changed, or would change in check mode, when in diff mode.
  idempotent:
    description: A second run with the same options and the same state of the cluster changes nothing.
"""
