# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter.hostlist import FilterModule

FILTERS = FilterModule().filters()


@pytest.mark.parametrize(
    "name, value, options, result",
    [
        ("hostlist_expand", "c[1-2]", {}, ["c1", "c2"]),
        ("hostlist_expand", ["c[1-2]", "c2"], {}, ["c1", "c2", "c2"]),
        ("hostlist_expand", ["c[1-2]", "c2"], {"unique": True}, ["c1", "c2"]),
        ("hostlist_expand", (n for n in ["a", "b"]), {}, ["a", "b"]),
        ("hostlist_compress", ["c2", "c1"], {}, "c[2,1]"),
        ("hostlist_compress", ["c2", "c1", "c2"], {"sort": True, "unique": True}, "c[1-2]"),
        ("hostlist_compress", "c1", {}, "c1"),
    ],
)
def test_filters(name: str, value: t.Any, options: dict[str, t.Any], result: t.Any) -> None:
    assert FILTERS[name](value, **options) == result


@pytest.mark.parametrize(
    "name, value, options, complaint",
    [
        ("hostlist_expand", 5, {}, "not int"),
        ("hostlist_expand", None, {}, "not NoneType"),
        ("hostlist_expand", {"a": 1}, {}, "not dict"),
        ("hostlist_expand", ["a", 5], {}, "not int (5)"),
        ("hostlist_expand", "n[1-", {}, "'[' without ']'"),
        ("hostlist_expand", ["n[1-3]", "m[1-3]"], {"limit": 5}, "limit 5"),
        ("hostlist_compress", ["a,b"], {}, "'a,b' is not a host name"),
        ("hostlist_compress", [["a"]], {}, "not list"),
    ],
)
def test_filters_refuse_bad_input(name: str, value: t.Any, options: dict[str, t.Any], complaint: str) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        FILTERS[name](value, **options)
    assert complaint in str(caught.value)
