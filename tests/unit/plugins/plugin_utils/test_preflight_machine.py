# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machine types and the cluster's own variables, as the preflight sees them; and those of all inventories here."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight import machine

ROOT = Path(__file__).resolve().parents[4]
FILES = sorted(
    path
    for folder in ("inventories", "lab/inventory", "extensions/molecule")
    for path in (ROOT / folder).rglob("*.yml")
    if "cluster_" in path.read_text(encoding="utf-8")
)
EXPECTED = [{"check": "gpu_count", "metric": "gpus", "op": "==", "value": 8, "unit": "GPUs", "source": "ours"}]


def found(**inputs: t.Any) -> list[str]:
    return [text for check in machine.CHECKS for text in check(inputs)]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"cluster_sku": "DGX-H100"}, ["cluster_sku is 'DGX-H100'", "dgx_h100", "preflight_allow_unknown_sku: true"]),
        ({"cluster_sku": "zzz"}, ["cluster_sku is 'zzz'", "docs/sku_profiles.md", "draft_profile.yml"]),
        ({"cluster_sku": "a/b"}, ["cluster_sku is 'a/b'", "letters, digits", "profiles/NAME.yml beside the inventory"]),
        ({"cluster_sku": "DGX H100"}, ["no name of a machine type", "accepted: dgx_h100 or "]),
        ({"cluster_sku": "v100"}, ["dgx_1_v100_32gb"]),
        (
            {"hosts": {"c1": {"sku": "dgx_h10"}, "c2": {"sku": "dgx_h100"}}, "preflight_compute_hosts": ["c1", "c2"]},
            ["cluster_sku of c1 is 'dgx_h10'", "dgx_h100"],
        ),
        ({"cluster_share_dir": "/shared"}, ["cluster_share_dir", "nothing reads it", "accepted: cluster_shared_dir"]),
        ({"cluster_share": "/shared"}, ["accepted: cluster_shared_dir"]),
        ({"cluster_SKU": "dgx_h100"}, ["accepted: cluster_sku"]),
        ({"cluster_names": "x"}, ["accepted: cluster_name"]),
        ({"cluster_container": True}, ["accepted: cluster_containers"]),
    ],
)
def test_a_slip_is_one_finding(inputs: dict[str, t.Any], words: list[str]) -> None:
    (text,) = found(**inputs)
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"cluster_sku": "Standard_ND96asr_v4"},
        {"cluster_sku": "generic"},
        {"cluster_sku": "zzz", "preflight_allow_unknown_sku": True},
        {"cluster_sku": "zzz", "certification_profile_overrides": {"expect": EXPECTED}},
        {"cluster_location": "rack 7", "cluster_owner": "us"},
        {"cluster_share_dir": "/a", "cluster_shared_dir": "/b"},
        {"cluster_users": []},
    ],
)
def test_what_can_be_wanted_passes(inputs: dict[str, t.Any]) -> None:
    assert found(**inputs) == []


def test_a_site_s_profile_that_cannot_be_used_is_refused_before_anything_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "ours.yml"
    path.write_text("gpu: {count: eight}\nvcpu: 3\n")
    texts = found(cluster_sku="ours", preflight_profile_dir=str(tmp_path))
    assert len(texts) == 2
    assert all(str(path) in text for text in texts)
    path.write_text("gpu: {count: 8}\n")
    assert found(cluster_sku="ours", preflight_profile_dir=str(tmp_path)) == []


def test_the_known_variables_are_those_that_something_reads() -> None:
    read: set[str] = set()
    places = [ROOT / "playbooks", *(path for path in (ROOT / "roles").glob("*/*") if path.name != "README.md")]
    for place in places:
        for path in place.rglob("*.yml"):
            read |= set(re.findall(r"(?<![\w.])cluster_([a-z_]+)\b", path.read_text(encoding="utf-8")))
    lookups = {"profile_dir", "profiles"}
    assert lookups <= machine.VARIABLES
    assert machine.VARIABLES - lookups <= read


def variables(path: Path) -> t.Iterator[tuple[str, t.Any]]:
    """Every key of a file, wherever it stands, that begins as a variable of the cluster does."""
    for document in yaml.load_all(path.read_text(encoding="utf-8"), Loader):
        todo = [document]
        while todo:
            item = todo.pop()
            if isinstance(item, dict):
                yield from ((str(key), value) for key, value in item.items() if str(key).startswith("cluster_"))
                todo += item.values()
            elif isinstance(item, list):
                todo += item


class Loader(yaml.SafeLoader):
    """Takes tags such as !vault for what they stand at."""


Loader.add_multi_constructor("!", lambda loader, suffix, node: loader.construct_scalar(node))


def test_there_are_inventories_to_look_at() -> None:
    assert {path.parts[len(ROOT.parts)] for path in FILES} == {"inventories", "lab", "extensions"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_inventories_here_have_no_slip(path: Path) -> None:
    given = dict(variables(path))
    assert machine.misspelt(given) == []
    whole = yaml.load(path.read_text(encoding="utf-8"), Loader) if "sku" in path.read_text(encoding="utf-8") else {}
    allowed = isinstance(whole, dict) and whole.get("preflight_allow_unknown_sku", False)
    if "{{" not in str(given.get("cluster_sku", "")):
        own = next((str(folder / "profiles") for folder in path.parents if (folder / "profiles").is_dir()), "")
        inputs = {**given, "preflight_allow_unknown_sku": allowed, "preflight_profile_dir": own}
        assert machine.machine_types(inputs) == []
