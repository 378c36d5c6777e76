# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, compress, expand

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurm"
SLURM: dict[str, t.Any] = json.loads((FIXTURES / "hostlist-22.05.json").read_text())

NAMES = st.lists(
    st.one_of(
        st.from_regex(r"[a-z]{1,2}[0-9]{1,4}", fullmatch=True),
        st.from_regex(r"r[0-3]n(0[89]|09|9|10|11|99|100|099)(-ib)?", fullmatch=True),
        st.from_regex(r"[0-9]{1,25}", fullmatch=True),
    ),
    max_size=40,
)


@pytest.mark.parametrize("text, names", SLURM["expand"].items())
def test_expand_is_what_slurm_prints(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("names, text", SLURM["compress"].items())
def test_compress_is_what_slurm_prints(names: str, text: str) -> None:
    assert compress(names.split(",")) == text


@pytest.mark.parametrize("names, text", SLURM["compress_sorted"].items())
def test_sorted_compress_is_what_slurm_prints(names: str, text: str) -> None:
    assert compress(names.split(","), sort=True) == text


@pytest.mark.parametrize(
    "text, names",
    [
        ("", []),
        ("  ", []),
        ("c1", ["c1"]),
        ("n[1-3]-ib", ["n1-ib", "n2-ib", "n3-ib"]),
        ("n[1-2]x[3-4]y", ["n1x3y", "n1x4y", "n2x3y", "n2x4y"]),
        ("n[1,2[0-2]]", ["n1", "n20", "n21", "n22"]),
        ("n[1-2,[4-5]]", ["n1", "n2", "n4", "n5"]),
        ("n[1-2]5", ["n15", "n25"]),
        ("n[01,1,001]", ["n01", "n1", "n001"]),
        ("n[1-2],n[01-02]", ["n1", "n2", "n01", "n02"]),
        (" a , b[1-2] c ", ["a", "b1", "b2", "c"]),
        ("a[1-2][1-2][1-2]", ["a111", "a112", "a121", "a122", "a211", "a212", "a221", "a222"]),
    ],
)
def test_expand(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("n[1-3", "'[' without ']'"),
        ("n1-3]", "']' without '['"),
        ("n]1[", "']' without '['"),
        ("a,,b", "empty item"),
        (",a", "empty item"),
        ("a,", "empty item"),
        ("n[1-]", "'1-' is neither"),
        ("n[x]", "'x' is neither"),
        ("n[1 2]", "blank inside brackets"),
        ("n[1-2-3]", "neither a number nor a range"),
        ("n[1-2[3-4]]", "neither a number nor a range"),
        ("n[9-8]", "runs backwards"),
        ("n[0-1234567890123456789]", "more than 18 digits"),
    ],
)
def test_expand_names_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(HostlistError) as caught:
        expand(text)
    assert complaint in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", SLURM["refused"])
def test_expand_refuses_what_slurm_refuses(text: str) -> None:
    with pytest.raises(HostlistError):
        expand(text)


@pytest.mark.parametrize(
    "text",
    [
        "n[0-999999999]",
        "n[0-65536]",
        "a[0-999][0-999]",
        "n[0-40000],m[0-40000]",
        "n[0-40000,0-40000]",
        "a[1,[0-70000]]",
    ],
)
def test_expand_stops_at_the_limit_before_it_builds_the_names(text: str) -> None:
    with pytest.raises(HostlistError, match="more names than the limit"):
        expand(text)


def test_the_limit_itself_is_allowed() -> None:
    assert len(expand("n[0-9]", limit=10)) == 10
    with pytest.raises(HostlistError):
        expand("n[0-9]", limit=9)


@pytest.mark.parametrize("name", ["", "n[1]", "a,b", "a b", "a\n"])
def test_compress_refuses_what_is_no_name(name: str) -> None:
    with pytest.raises(HostlistError, match="is not a host name"):
        compress(["c1", name])


@pytest.mark.parametrize(
    "names, options, text",
    [
        ([], {}, ""),
        (["login"], {}, "login"),
        (["c2", "c1", "c2"], {"unique": True}, "c[2,1]"),
        (["c10", "c9", "c2", "c10"], {"unique": True, "sort": True}, "c[2,9-10]"),
        (["c10", "c09", "c11"], {"sort": True}, "c[09-11]"),
        (["a2b1", "a10b1", "a1b1"], {"sort": True}, "a1b1,a2b1,a10b1"),
        (["x", "x"], {}, "x,x"),
        (["1" * 5000, "2"], {"sort": True}, "2," + "1" * 5000),
    ],
)
def test_compress_options(names: list[str], options: dict[str, bool], text: str) -> None:
    assert compress(names, **options) == text


@given(NAMES)
def test_expanding_gives_the_names_back(names: list[str]) -> None:
    assert expand(compress(names)) == names


@given(NAMES)
def test_sorting_and_dropping_repeats_keeps_the_set(names: list[str]) -> None:
    back = expand(compress(names, sort=True, unique=True))
    assert len(back) == len(set(back))
    assert set(back) == set(names)
