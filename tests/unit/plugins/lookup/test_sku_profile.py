# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible.errors import AnsibleLookupError

from ansible_collections.hpcai.gpu_cluster.plugins.lookup.sku_profile import LookupModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import validate_expectation
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _profiles as profiles

FLOOR = {"check": "c", "metric": "m", "size": 8, "op": ">=", "value": 1, "unit": "s", "source": "shipped"}
SHIPPED = sorted(profiles.DIRECTORY.glob("*.yml"))


def lookup(*terms: str, **options: t.Any) -> list[dict[str, t.Any]]:
    plugin = LookupModule()
    plugin.set_options = lambda **dummy: None
    plugin.get_option = lambda name: options.get(name, {})
    return plugin.run(list(terms), None)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_profile_can_judge(path: Path) -> None:
    found = profiles.load(path.stem)
    assert found["known"]
    assert path.name == profiles.file_name(path.stem), "file names are lower case"
    for one in found["expect"]:
        validate_expectation(one)
        assert len(one["source"]) > 20, "a number without a source is an opinion"


def test_an_unknown_sku_expects_nothing() -> None:
    found = profiles.load("Standard_Unheard_of_v9")
    assert (found["profile"], found["known"], found["expect"]) == ("generic", False, [])


def test_case_does_not_matter() -> None:
    assert profiles.load("LAB")["profile"] == "lab"


@pytest.mark.parametrize("sku", ["", "../generic", "a/b", ".hidden", "a b"])
def test_names_that_are_no_file_names(sku: str) -> None:
    with pytest.raises(profiles.ProfileError):
        profiles.load(sku)


@pytest.mark.parametrize("text", ["", "[]", "expect: 1"])
def test_a_broken_profile(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(text)
    with pytest.raises(profiles.ProfileError):
        profiles.load("x", tmp_path)


def test_override_replaces_the_same_expectation_and_adds_another() -> None:
    profile = {"expect": [FLOOR], "vcpus": 4}
    site = {"vcpus": 8, "expect": [{**FLOOR, "value": 2}, {**FLOOR, "size": 16}]}
    got = profiles.override(profile, site)
    assert [(one["size"], one["value"]) for one in got["expect"]] == [(8, 2), (16, 1)]
    assert (got["vcpus"], profile["expect"]) == (8, [FLOOR])
    with pytest.raises(ValueError, match="lacks"):
        profiles.override(profile, {"expect": [{"check": "c"}]})


def test_lookup() -> None:
    assert [found["profile"] for found in lookup("lab", "no_such_size")] == ["lab", "generic"]
    assert lookup("no_such_size", overrides={"expect": [FLOOR]})[0]["expect"] == [FLOOR]


@pytest.mark.parametrize("terms, options", [(("a/b",), {}), (("lab",), {"overrides": {"expect": [{}]}})])
def test_lookup_says_what_is_wrong(terms: tuple[str], options: dict[str, t.Any]) -> None:
    with pytest.raises(AnsibleLookupError, match="sku_profile"):
        lookup(*terms, **options)
