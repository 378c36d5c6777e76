# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check records as JSON lines: one a line, keys sorted, so that the same records make the same file. Private."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_results import plain

Row = t.Mapping[str, t.Any]


def line(record: Row) -> str:
    """Return one record as a line; numbers that JSON does not know become null."""
    return json.dumps(plain(record), sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"
