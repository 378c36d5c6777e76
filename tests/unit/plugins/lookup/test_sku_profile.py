# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleLookupError

from ansible_collections.hpcai.gpu_cluster.plugins.lookup.sku_profile import LookupModule
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _profiles as profiles

FLOOR = {"check": "c", "metric": "m", "size": 8, "op": ">=", "value": 1, "unit": "s", "source": "shipped"}


def lookup(*terms: str, **options: t.Any) -> list[dict[str, t.Any]]:
    plugin = LookupModule()
    plugin.set_options = lambda **dummy: None
    plugin.get_option = lambda name: options.get(name, {})
    return plugin.run(list(terms), None)


def test_an_unknown_sku_expects_nothing() -> None:
    found = profiles.load("Standard_Unheard_of_v9")
    assert (found["profile"], found["known"], found["expect"]) == ("generic", False, [])


@pytest.mark.parametrize(
    "sku, profile",
    [
        ("GENERIC", "generic"),
        ("Standard_ND96asr_v4", "nd96asr_v4"),
        ("STANDARD_nd96ASR_V4", "nd96asr_v4"),
        ("Standard_ND128isr_NDR_GB200_v6", "nd128isr_ndr_gb200_v6"),
        ("Standard_", "generic"),
    ],
)
def test_case_and_azure_s_prefix_do_not_matter(sku: str, profile: str) -> None:
    found = profiles.load(sku)
    assert (found["profile"], found["sku"]) == (profile, sku)


@pytest.mark.parametrize("sku", ["", "../generic", "a/b", ".hidden", "a b", "_nvidia", "Standard_/x"])
def test_names_that_are_no_file_names(sku: str) -> None:
    with pytest.raises(profiles.ProfileError):
        profiles.load(sku)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "no mapping"),
        ("[]", "no mapping"),
        ("expect: 1", "no mapping"),
        ("a: [", "no YAML"),
        ("base: _x", "its own base"),
        ("base: lab", "start with"),
    ],
)
def test_a_broken_profile(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(text)
    (tmp_path / "_x.yml").write_text("base: _x")
    with pytest.raises(profiles.ProfileError, match=message):
        profiles.load("x", tmp_path)


def test_a_profile_lies_over_its_bases(tmp_path: Path) -> None:
    other = {**FLOOR, "metric": "n"}
    files: dict[str, dict[str, t.Any]] = {
        "_a": {"vcpus": 1, "gpu": {"count": 8, "model": "x"}, "expect": [FLOOR, other]},
        "_b": {"base": "_a", "vcpus": 2, "nvme": {"count": 8}},
        "_c": {"expect": [{**FLOOR, "value": 2}]},
        "x": {"base": ["_b", "_c"], "gpu": {"model": "y"}, "nvme": None, "expect": [{**other, "value": None}]},
    }
    for name, content in files.items():
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump(content))
    found = profiles.load("x", tmp_path)
    assert (found["vcpus"], found["gpu"]) == (2, {"count": 8, "model": "y"})
    assert [(one["metric"], one["value"]) for one in found["expect"]] == [("m", 2)]
    assert not {"nvme", "base"} & set(found)


def test_override_replaces_the_same_expectation_and_adds_another() -> None:
    profile = {"expect": [FLOOR], "vcpus": 4}
    site = {"vcpus": 8, "expect": [{**FLOOR, "value": 2}, {**FLOOR, "size": 16}]}
    got = profiles.override(profile, site)
    assert [(one["size"], one["value"]) for one in got["expect"]] == [(8, 2), (16, 1)]
    assert (got["vcpus"], profile["expect"]) == (8, [FLOOR])
    with pytest.raises(ValueError, match="lacks"):
        profiles.override(profile, {"expect": [{"check": "c"}]})


def test_override_merges_mappings_and_replaces_the_rest() -> None:
    nccl = {"environment": {"A": "1", "B": "1"}, "tests": {"collectives": ["all_reduce"], "max_size": 8}}
    profile = {"expect": [], "nccl": nccl, "gpu": {"count": 8}}
    site = {"nccl": {"environment": {"B": None, "C": "1"}, "tests": {"collectives": ["alltoall"]}}, "gpu": None}
    got = profiles.override(profile, site)
    assert got["nccl"]["environment"] == {"A": "1", "C": "1"}
    assert got["nccl"]["tests"] == {"collectives": ["alltoall"], "max_size": 8}
    assert "gpu" not in got
    assert profile["nccl"]["environment"] == {"A": "1", "B": "1"}


def test_override_keeps_the_other_one_of_a_pair() -> None:
    """A site that moves the limit that refuses a node leaves the one that warns, and the other way round."""
    warn = {**FLOOR, "value": 2, "verdict": "warn"}
    got = profiles.override({"expect": [FLOOR, warn]}, {"expect": [{**FLOOR, "value": 5, "verdict": "fail"}]})
    assert [(one["value"], one.get("verdict")) for one in got["expect"]] == [(5, "fail"), (2, "warn")]


def test_override_takes_an_expectation_away() -> None:
    site = {"expect": [{"check": "c", "metric": "m", "size": 8, "value": None}]}
    assert profiles.override({"expect": [FLOOR]}, site)["expect"] == []
    with pytest.raises(profiles.ProfileError, match="take away"):
        profiles.override({"expect": []}, site)


def test_override_refuses_a_unit_that_nothing_is_measured_in() -> None:
    with pytest.raises(profiles.ProfileError, match="gpu_bandwidth h2d is measured in GB/s"):
        profiles.override({"expect": []}, {"expect": [{**FLOOR, "check": "gpu_bandwidth", "metric": "h2d"}]})


def test_lookup() -> None:
    assert [found["profile"] for found in lookup("nd40rs_v2", "no_such_size")] == ["nd40rs_v2", "generic"]
    assert lookup("no_such_size", overrides={"expect": [FLOOR]})[0]["expect"] == [FLOOR]


@pytest.mark.parametrize("terms, options", [(("a/b",), {}), (("nd40rs_v2",), {"overrides": {"expect": [{}]}})])
def test_lookup_says_what_is_wrong(terms: tuple[str], options: dict[str, t.Any]) -> None:
    with pytest.raises(AnsibleLookupError, match="sku_profile"):
        lookup(*terms, **options)
