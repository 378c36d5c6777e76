# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of modules that return check records; documented in doc_fragments/measure.py. Private."""

from __future__ import annotations

import typing as t

Spec = t.Dict[str, t.Dict[str, t.Any]]

SPEC: Spec = {
    "expect": {"type": "list", "elements": "dict", "default": []},
    "profile": {"type": "str"},
    "run": {"type": "str"},
}
NODE: Spec = {"name": {"type": "str"}}
SYSFS: Spec = {"sysfs": {"type": "path", "default": "/sys"}}
