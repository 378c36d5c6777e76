# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A few seconds of what tests/fuzz/run.py does for hours, the same on every machine."""

from __future__ import annotations

import damage
import harness
import hypothesis
import pytest
from hypothesis import strategies as st

PARSERS = harness.discover()
OTHERS = [text for parser in PARSERS for text in parser.texts if len(text) < 5000]
settings = hypothesis.settings(
    max_examples=25, derandomize=True, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
)


def test_parsers_are_found() -> None:
    names = {parser.name for parser in PARSERS}
    assert {"nccl_tests.parse", "nccl_tests.parse_json"} <= names
    assert len(names) == len(PARSERS)


@pytest.mark.parametrize("parser", PARSERS, ids=str)
def test_every_fixture(parser: harness.Parser) -> None:
    for text in {*parser.texts, *OTHERS}:
        harness.check(parser, text)


@pytest.mark.parametrize("parser", PARSERS, ids=str)
def test_tags_and_terminals(parser: harness.Parser) -> None:
    for text in parser.texts:
        if len(text) < 30_000:
            harness.check_dressed(parser, text)


@pytest.mark.parametrize("parser", PARSERS, ids=str)
@settings
@hypothesis.given(data=st.data())
def test_damaged_logs(parser: harness.Parser, data: st.DataObject) -> None:
    harness.check(parser, data.draw(damage.damaged(parser.texts, OTHERS)))


@pytest.mark.parametrize("parser", PARSERS, ids=str)
def test_a_good_log_that_is_cut(parser: harness.Parser) -> None:
    for text in parser.texts:
        if len(text) < 30_000 and harness.good(parser.call(text)):
            for end in {*range(0, len(text), max(1, len(text) // 8)), *range(max(0, len(text) - 60), len(text), 7)}:
                harness.check_cut(parser, text, end)


@pytest.mark.parametrize("parser", PARSERS, ids=str)
def test_twice_the_text_is_twice_the_work(parser: harness.Parser) -> None:
    noise = "".join(damage.DEBUG) * 20
    for text in [*sorted(parser.texts, key=len)[-1:], noise]:
        once = (text + noise)[:40_000]
        counts = [harness.steps(parser, once * times) for times in (1, 2, 4)]
        assert counts[2] - counts[1] <= 2.2 * (counts[1] - counts[0]) + 500, counts
