# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A site's own profiles: where they are, what wins, and how what is wrong in them is named."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleLookupError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.hpcai.gpu_cluster.plugins.lookup.profile_dir import directory, sources
from ansible_collections.hpcai.gpu_cluster.plugins.lookup.sku_profile import LookupModule
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _measure, _profiles

COPY = {"check": "gpu_bandwidth", "metric": "h2d", "op": ">=", "value": 50, "unit": "GB/s", "source": "measured here"}


def write(folder: Path, name: str, content: t.Any) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.yml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    return path


def test_a_site_s_profile_wins_over_the_shipped_one_and_lies_over_it(tmp_path: Path) -> None:
    write(tmp_path, "dgx_h100", {"base": "dgx_h100", "infiniband": {"count": 12}, "expect": [COPY]})
    found = _profiles.load("DGX_H100", site=tmp_path)
    assert (found["origin"], found["known"], found["profile"], found["sku"]) == ("site", True, "dgx_h100", "DGX_H100")
    assert (found["infiniband"], found["gpu"]["count"]) == ({"count": 12, "rate_gbps": 400}, 8)
    limits = [
        (one["value"], one.get("verdict"))
        for one in found["expect"]
        if one["check"] == "gpu_bandwidth" and one["metric"] == "h2d"
    ]
    assert limits == [(48, "warn"), (50, None)]
    assert "origin" not in _profiles.load("dgx_h200", site=tmp_path)


def test_a_machine_type_of_the_site_is_known_and_may_lie_over_another_of_the_site(tmp_path: Path) -> None:
    write(tmp_path, "ours", {"base": ["_hopper", "extra"], "description": "Ours", "expect": [COPY]})
    write(tmp_path, "extra", {"vcpus": 64})
    with pytest.raises(_profiles.ProfileError, match=r"ours.yml: base is '_hopper', which is no profile"):
        _profiles.load("ours", site=tmp_path)
    write(tmp_path, "Ours", {"base": ["_h100_sxm", "extra"], "expect": [COPY]})
    (tmp_path / "ours.yml").unlink()
    found = _profiles.load("ours", site=tmp_path)
    assert (found["known"], found["vcpus"], found["gpu"]["count"]) == (True, 64, 8)
    assert "ours" in [name.lower() for name in _profiles.names(tmp_path)]


def test_a_circle_of_bases_is_named(tmp_path: Path) -> None:
    write(tmp_path, "a", {"base": "b"})
    write(tmp_path, "b", {"base": "a"})
    with pytest.raises(_profiles.ProfileError, match="is its own base"):
        _profiles.load("a", site=tmp_path)


def test_what_is_expected_by_overrides_makes_a_machine_type_known() -> None:
    assert not _profiles.load("no_such")["known"]
    assert _profiles.override(_profiles.load("no_such"), {"expect": [COPY]})["known"]
    assert not _profiles.override(_profiles.load("no_such"), {"vcpus": 8})["known"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"gpus": {}}, ["gpus is no name of a profile", "probably meant"]),
        ({"gpu": {"modle": "H100"}}, ["gpu.modle is no name", "model was probably meant"]),
        ({"gpu": {"count": "8"}}, ["gpu.count is '8'", "whole number from 0"]),
        ({"gpu": {"count": True}}, ["gpu.count is True"]),
        ({"gpu": {"count": -1}}, ["gpu.count is -1"]),
        ({"gpu": {"compute_capability": 9.0}}, ["gpu.compute_capability is 9.0", 'in quotes: "9.0"']),
        ({"gpu": 8}, ["gpu is 8", "a mapping with"]),
        ({"nvme": {"fewer": "ignore"}}, ["nvme.fewer is 'ignore'", "allow, refuse"]),
        ({"topology": {"gpus": [{"pci_domain": 1}]}}, ["topology.gpus[0].pci_domain is 1"]),
        ({"topology": {"gpus": 3}}, ["topology.gpus is 3", "list of mappings"]),
        ({"nccl": {"environment": {"NCCL_NVLS_ENABLE": 1}}}, ["nccl.environment.NCCL_NVLS_ENABLE is 1", 'quotes: "1"']),
        ({"infiniband": {"devices": ["mlx5_0", 1]}}, ["infiniband.devices is"]),
        ({"expect": [{**COPY, "check": "gpu_bandwith"}]}, ["expect[0]: check", "gpu_bandwidth", "probably meant"]),
        ({"expect": [{**COPY, "metric": "h2h"}]}, ["expect[0]: metric", "h2d"]),
        ({"expect": [COPY, {**COPY, "unit": "MB/s"}]}, ["expect[1]: ", "measured in GB/s"]),
        ({"expect": [{**COPY, "colective": "x"}]}, ["expect[0]: colective says nothing"]),
        ({"expect": [{key: COPY[key] for key in COPY if key != "source"}]}, ["expect[0]: ", "lacks source"]),
        ({"expect": ["fast"]}, ["expect[0]: 'fast' is no mapping"]),
        ("a: [", ["no YAML"]),
        ("- 1\n", ["no mapping"]),
    ],
)
def test_what_is_wrong_is_named_with_file_path_and_what_is_accepted(
    tmp_path: Path, content: t.Any, words: list[str]
) -> None:
    path = write(tmp_path, "ours", content)
    with pytest.raises(_profiles.ProfileError) as caught:
        _profiles.load("ours", site=tmp_path)
    assert all(word in str(caught.value) for word in [str(path), *words]), caught.value


def test_all_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    write(tmp_path, "ours", {"gpu": {"count": "8", "modle": "x"}, "vcpu": 1})
    with pytest.raises(_profiles.ProfileError) as caught:
        _profiles.load("ours", site=tmp_path)
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("sku", "first"),
    [
        ("DGX-H100", "dgx_h100"),
        ("DGX H100", "dgx_h100"),
        ("dgx1", "dgx_1_v100_32gb"),
        ("h100", "dgx_h100"),
        ("p5", "p5.48xlarge"),
        ("ND96asr-v4", "nd96asr_v4"),
        ("Standard_ND96asr-v4", "nd96asr_v4"),
    ],
)
def test_near_names(sku: str, first: str) -> None:
    assert _profiles.alike(sku)[0] == first


def test_where_profiles_are(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yml"
    hosts.write_text("all: {}")
    places = sources({"ansible_inventory_sources": [str(hosts), "a,b,"]})
    assert places == [tmp_path]
    assert directory(None, places) == ""
    (tmp_path / "profiles").mkdir()
    assert directory(None, places) == directory("profiles", places) == str(tmp_path / "profiles")
    assert directory("", places) == ""
    with pytest.raises(AnsibleLookupError, match=r"cluster_profile_dir is 'mine': there is no directory .*/mine"):
        directory("mine", places)
    with pytest.raises(AnsibleLookupError, match="the path of a directory"):
        directory(["a"], places)


def looked_up(variables: dict[str, t.Any], sku: str = "ours") -> dict[str, t.Any]:
    plugin = LookupModule(loader=DataLoader(), templar=Templar(loader=DataLoader(), variables=variables))
    plugin._load_name = "hpcai.gpu_cluster.sku_profile"
    plugin.set_options = lambda **dummy: None  # type: ignore[method-assign]
    plugin.get_option = lambda name: {}  # type: ignore[method-assign]
    return plugin.run([sku], variables)[0]


def test_every_reader_gets_the_same_profile(tmp_path: Path) -> None:
    """The lookup, the measurements, and a node that has it from its bundle."""
    write(tmp_path / "profiles", "ours", {"base": "hgx_h100", "expect": [COPY]})
    place = str(tmp_path / "profiles")
    found = looked_up({"ansible_inventory_sources": [str(tmp_path)]})
    assert found == looked_up({"cluster_profile_dir": place}) == _profiles.load("ours", site=Path(place))
    assert found["known"]
    assert _measure.machine([], "ours", 0, {}, place)["profile"] == found
    on_the_node = looked_up({"cluster_profiles": {"ours": found}, "cluster_profile_dir": "/not/there"})
    assert on_the_node == found
    assert looked_up({"cluster_profiles": {"ours": found}}, "dgx_h100")["profile"] == "dgx_h100"
