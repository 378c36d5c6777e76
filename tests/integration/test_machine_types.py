# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every machine type that has a profile can be emulated, and is then what its profile expects."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import ROOT, SETUP, Cluster

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import DIRECTORY, load

SKUS = sorted(path.stem for path in DIRECTORY.glob("[!_]*.yml") if (load(path.stem).get("gpu") or {}).get("count"))
GOOD = {"pass", "unjudged", "skipped"}


@pytest.mark.parametrize("sku", SKUS)
def test_passes_its_own_profile(tmp_path: Path, sku: str) -> None:
    cluster = Cluster(tmp_path, sku)
    profile, gpu = cluster.profile, cluster.profile["gpu"]
    places = (profile.get("topology") or {}).get("gpus") or []
    nccl = profile["nccl"]["tests"]
    known = {"gpus": gpu["count"], "model": gpu["model"], "topology": places, "sysfs": cluster.sysfs}
    records = cluster.module("gpu_info", **known)["checks"]
    records.append(cluster.module("gpu_clocks", settle=0, record=str(tmp_path / "clocks.json"))["check"])
    records += cluster.module("gpu_bandwidth", gpus=gpu["count"], sysfs=cluster.sysfs, mode="parallel")["checks"]
    sizes = {"min_size": "1G", "max_size": str(nccl["max_size"])}
    records += cluster.module("nccl_tests", gpus_per_rank=gpu["count"], **sizes)["checks"]
    pair = {"launcher": "srun", "hosts": ["c1", "c2"], "ranks_per_node": gpu["count"], "name": None}
    records += cluster.module("nccl_tests", **pair, **sizes)["checks"]
    records += cluster.module(
        "infiniband_info", ports=profile.get("infiniband", {}).get("count", 0), sysfs=cluster.sysfs
    )["checks"]
    bad = {record["check"]: record["reason"] for record in records if record["verdict"] not in GOOD}
    assert bad == {}


def test_the_image_has_a_link_for_every_tool(cluster: Cluster) -> None:
    script = (ROOT / "lab/roles/lab_nodes/files/customize_container.sh").read_text()
    match = re.search(r"for tool in (.*?); do", script, re.DOTALL)
    assert match is not None
    tools = (SETUP.parent / "tools.py").read_text()
    assert "bandwidthTest" in tools
    installed = {path.name for path in (cluster.directory / "bin").iterdir()}
    assert set(match.group(1).replace("\\", "").split()) == installed | {"bandwidthTest"}
