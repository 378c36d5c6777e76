# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Apex computes on a real GPU, in an environment that the role apex made; APEX_PYTHON names its Python."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import text_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import apex, apex_proof, apex_recipe

PYTHON = os.environ.get("APEX_PYTHON", "")
MODULES = ["amp_C", "fused_layer_norm_cuda"]


@pytest.mark.skipif(not PYTHON, reason="APEX_PYTHON names no environment with Apex; the role apex makes one")
def test_fused_kernels_compute_what_pytorch_computes() -> None:
    argv = [PYTHON, "-", json.dumps({"modules": MODULES, "maybe": []})]
    said = subprocess.run(argv, input=text_of(apex_proof), capture_output=True, text=True, timeout=600, check=False)
    cuda = [apex_recipe.Extension("cuda_ext", MODULES, [], [], True)]
    proof = apex.judge(said.stdout, said.stderr, cuda)
    assert proof["state"] == "computed", proof["summary"]
    assert "FusedAdam off by" in proof["summary"]
    assert "FusedLayerNorm off by" in proof["summary"]
