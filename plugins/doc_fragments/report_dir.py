# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the run record is: one option for the callback that writes it and the lookup that finds it."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  report_dir:
    description: Directory of the run record and the report. A relative one starts at the configuration file.
    type: path
    default: reports
    env:
      - name: HPCAI_REPORT_DIR
    ini:
      - section: callback_run_record
        key: report_dir
"""
