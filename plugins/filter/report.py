# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters of the report."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._report.page import page
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._run_results import plain
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._verdicts import summary


def report_html(record: t.Any) -> str:
    """Draw the run record as one HTML page."""
    if not isinstance(record, t.Mapping):
        raise AnsibleFilterError(f"report_html wants the run record, a dict, not {type(record).__name__}")
    return page(plain(record))


def verdicts(checks: t.Any) -> dict[str, t.Any]:
    """Sum up a list of check records."""
    if not isinstance(checks, (list, tuple)) or not all(isinstance(check, t.Mapping) for check in checks):
        raise AnsibleFilterError("verdicts wants a list of check records")
    return summary(checks)


class FilterModule:
    """What the report offers to templates."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"report_html": report_html, "verdicts": verdicts}
