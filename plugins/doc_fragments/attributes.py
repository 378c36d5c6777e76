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
    description: Can run in check mode and return what would change, without changing it.
  diff_mode:
    description: Returns in diff mode what has changed, or what would change in check mode.
  idempotent:
    description:
      - When run twice in a row with the same options, on machines in the same state, the second run does not change
        anything.
"""
