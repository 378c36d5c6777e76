# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the control host keeps what it need not fetch or build again: one option for all plugins and roles."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  cache_dir:
    description:
      - Directory on the control host for what need not be fetched or built again. The default is C(hpcai.gpu_cluster)
        in E(XDG_CACHE_HOME), else in C(~/.cache). A relative path in the configuration file starts at the directory
        of that file.
    type: path
    vars:
      - name: cluster_cache_dir
    env:
      - name: HPCAI_CACHE_DIR
    ini:
      - section: hpcai_gpu_cluster
        key: cache_dir
"""
