# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the run record is: one option for the callback that writes it and the lookup that finds it."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  report_dir:
    description:
      - Directory of the run record (C(run.json)) and the report. A relative path in the configuration file starts at
        the directory of that file, any other, the default included, at the current directory.
    type: path
    default: reports
    env:
      - name: HPCAI_REPORT_DIR
    ini:
      - section: callback_run_record
        key: report_dir
"""
