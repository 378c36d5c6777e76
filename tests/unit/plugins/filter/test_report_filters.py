# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter.report import FilterModule, report_html, verdicts

PASS, FAIL, SKIPPED, ODD = (
    {"node": node, "check": "munge", "verdict": verdict, "reason": "why"}
    for node, verdict in (("c1", "pass"), ("c2", "fail"), ("c1", "skipped"), ("c3", "marvellous"))
)


@pytest.mark.parametrize(
    "checks, counts, worst, planned, reached",
    [
        ([], {}, "unjudged", 0, 0),
        ([PASS, PASS], {"pass": 2}, "pass", 2, 2),
        ([PASS, FAIL, SKIPPED], {"fail": 1, "pass": 1, "skipped": 1}, "fail", 3, 2),
        ([PASS, ODD], {"error": 1, "pass": 1}, "error", 2, 1),
        ([SKIPPED], {"skipped": 1}, "skipped", 1, 0),
    ],
)
def test_verdicts(checks: list, counts: dict, worst: str, planned: int, reached: int) -> None:
    found = verdicts(checks)
    assert (found["counts"], found["worst"], found["planned"], found["reached"]) == (counts, worst, planned, reached)
    assert planned == reached + len(found["untested"])


def test_verdicts_per_node_and_reasons() -> None:
    found = verdicts([PASS, FAIL, SKIPPED])
    assert found["nodes"] == {"c1": "pass", "c2": "fail"}
    assert found["untested"] == [{"node": "c1", "check": "munge", "verdict": "skipped", "reason": "why"}]


@pytest.mark.parametrize("bad", [None, "x", {"a": 1}, ["x"]])
def test_verdicts_refuses_anything_else(bad: object) -> None:
    with pytest.raises(AnsibleFilterError):
        verdicts(bad)


@pytest.mark.parametrize("bad", [None, "x", []])
def test_report_html_refuses_anything_else(bad: object) -> None:
    with pytest.raises(AnsibleFilterError):
        report_html(bad)


def test_filters_have_their_names() -> None:
    assert set(FilterModule().filters()) == {"report_html", "verdicts"}
