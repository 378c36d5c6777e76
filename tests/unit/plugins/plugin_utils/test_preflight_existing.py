# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the preflight wants of a Slurm that somebody else runs, and GPUs whose lines the machine type brings."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight import findings, gres

THEIRS: dict[str, t.Any] = {
    "cluster_slurm": "existing",
    "cluster_name": "theirs",
    "cluster_user": "trainer",
    "cluster_sku": "dgx_h100",
    "cluster_shared_dir": "/gpfs/home/trainer/hpcai",
    "preflight_login_hosts": ["login-01"],
}


def test_one_login_node_is_enough_where_slurm_is_somebody_else_s() -> None:
    assert findings(THEIRS) == []
    assert findings({**THEIRS, "cluster_python": "/opt/torch/bin/python", "cluster_apex": False}) == []
    assert findings({**THEIRS, "cluster_python": "/opt/torch/bin/python", "cluster_apex": "false"}) == []
    assert findings({**THEIRS, "cluster_slurm": "ours"}) != []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cluster_slurm": "exsiting"}, ["cluster_slurm is 'exsiting'", "existing"]),
        ({"cluster_driver": "mine"}, ["cluster_driver is 'mine'", "existing", "ours"]),
        ({"cluster_python": "python3"}, ["cluster_python is 'python3'", "an absolute path"]),
        (
            {"cluster_python": "/opt/torch/bin/python", "cluster_apex": True},
            ["cluster_apex is True", "no cluster_python"],
        ),
        ({"cluster_sku": "DGX-H100"}, ["no such machine type", "dgx_h100"]),
        ({"cluster_user": ""}, ["cluster_user"]),
        ({"preflight_login_hosts": []}, ["no host where jobs are submitted"]),
    ],
)
def test_what_cannot_be_measured_is_said(change: dict[str, t.Any], words: list[str]) -> None:
    text = "\n".join(findings({**THEIRS, **change}))
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("sku", "claim", "problem"),
    [
        ("dgx_h100", "gpu:h100:8", ""),
        ("dgx_h100", "gpu:h100:4", ""),
        ("dgx_h100", "gpu:a100:8", "no gpu of type a100"),
        ("dgx_h100", "gpu:h100:16", "offers 8 there"),
    ],
)
def test_gpus_are_offered_by_the_machine_type_where_the_inventory_lists_none(
    sku: str, claim: str, problem: str
) -> None:
    host = {"slurm_node": {"gres": claim}, "sku": sku, "node": "n1"}
    texts = gres.matching({"preflight_compute_hosts": ["n1"], "hosts": {"n1": host}})
    assert (not texts) if not problem else (len(texts) == 1 and problem in texts[0]), texts
