# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages work with a PyTorch and a Python, and which releases of Apex with a PyTorch and a CUDA."""

from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import extras
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.versions import (
    APEX_RELEASES,
    FittingError,
    apex_misfits,
    misfits,
    version_for,
    within,
)

BUILDS = {"cpu": "2.13.0+cpu", "cu126": "2.7.1", "cu128": "2.10.0", "cu130": "2.14.1"}


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("2.13.0+cpu", "", True),
        ("2.13.0+cpu", ">=2.6", True),
        ("2.13.0+cu130", "==2.13", True),
        ("2.9.0", "<2.9", False),
        ("2.8.1", "<2.9", True),
        ("2.10.0", "<2.9", False),
        ("2.10.0", ">=2.6, <2.11, !=2.10.0", False),
        ("3.9", ">=3.10", False),
        ("3.12", ">3.12", False),
        ("3.12.1", ">3.12", True),
        ("3.12", "<=3.12", True),
    ],
)
def test_versions_are_compared_by_number(version: str, wanted: str, expected: bool) -> None:
    assert within(version, wanted) is expected


@pytest.mark.parametrize("wanted", ["2.9", "~=2.9", "<2.9;", ">=a"])
def test_what_is_no_range_is_refused(wanted: str) -> None:
    with pytest.raises(FittingError, match="is no range of versions"):
        within("2.9", wanted)


def package(**fits: t.Any) -> dict[str, t.Any]:
    return {"name": "torch-ort", "version": "1.19.2", "fits": fits}


@pytest.mark.parametrize(
    ("wanted", "nearest"),
    [("<2.9", "cu126, with 2.7.1"), ("<2.13", "cu128, with 2.10.0"), (">=2.14", "cu130, with 2.14.1")],
)
def test_the_nearest_build_is_named(wanted: str, nearest: str) -> None:
    (text,) = misfits(
        [package(torch=wanted, because="It says so", instead="Take another")], "2.13.0+cpu", "3.11", BUILDS
    )
    assert text == (
        f"torch-ort 1.19.2 needs PyTorch {wanted}, the environment has 2.13.0+cpu. It says so. "
        f"The nearest build that has is {nearest} (pytorch_build). Take another"
    )


def test_both_misfits_are_named_and_packages_without_needs_fit() -> None:
    texts = misfits([{"name": "other", "version": "1"}, package(torch=">9", python="<3.10")], "2.7.1", "3.11", BUILDS)
    assert len(texts) == 2
    assert "none of the known builds has such a PyTorch (cpu: 2.13.0+cpu, cu126: 2.7.1" in texts[0]
    assert texts[1].endswith("the environment has 3.11. pytorch_python chooses another")
    assert misfits([package(torch=">=2.6", python=">=3.10")], "2.7.1", "3.11", {}) == []


def test_what_needs_a_pytorch_for_gpus_is_refused_beside_one_for_cpus() -> None:
    vision = {"name": "torchvision", "version": "0.29.2", "versions": {"2.10": "0.25.0"}}
    vision["fits"] = {"torch": ">=2.7", "cuda": True}
    builds = {**BUILDS, "cpu": "2.14.1+cpu"}
    assert misfits([vision], "2.14.1", "3.11", builds) == misfits([vision], "2.14.1+cu130", "3.11", builds) == []
    (text,) = misfits([vision], "2.14.1+cpu", "3.11", builds)
    assert text == (
        "torchvision 0.29.2 needs PyTorch for CUDA >=2.7, the environment has 2.14.1+cpu. "
        "The nearest build that has is cu130, with 2.14.1 (pytorch_build)"
    )


@pytest.mark.parametrize(
    ("torch", "expected"), [("2.10.0+cu128", "0.25.0"), ("2.7.1", "0.22.1"), ("2.1.0", "0.29.2"), ("2.14.1", "0.29.2")]
)
def test_the_version_that_goes_with_a_pytorch_is_chosen(torch: str, expected: str) -> None:
    vision = {"name": "torchvision", "version": "0.29.2", "versions": {"2.7": "0.22.1", "2.10": "0.25.0"}}
    assert version_for(vision, torch) == expected
    assert extras.inputs([vision], [], torch) == [f"torchvision=={expected}"]


def test_a_key_that_is_misspelt_is_refused() -> None:
    with pytest.raises(FittingError, match="fits of torch-ort has unknown pytorch"):
        misfits([package(pytorch="<2.9")], "2.7.1", "3.11", BUILDS)


TAGS = {release.name.partition(",")[0]: commit for commit, release in APEX_RELEASES.items()}


@pytest.mark.parametrize(
    ("tag", "extensions", "torch", "cuda", "said"),
    [
        (
            "22.03",
            ["cpp_ext"],
            "2.13.0+cpu",
            "",
            r"^Apex 22\.03 does not work with PyTorch 2\.13\.0\+cpu: .*six.*is 23\.05, ",
        ),
        ("22.03", ["cpp_ext"], "1.13.1+cu117", "11.7", ""),
        ("23.05", ["cpp_ext"], "2.13.0+cpu", "", ""),
        (
            "25.09",
            ["cpp_ext", "cuda_ext"],
            "2.9.1",
            "13.0",
            r"^cuda_ext of Apex 25\.09 .* CUDA 13\.0: .*is main of 2026",
        ),
        ("25.09", ["cpp_ext", "cuda_ext"], "2.10.0", "12.8", ""),
        ("25.09", ["group_norm"], "2.11.0+cu130", "13.0", ""),
        (
            "25.09",
            ["group_norm", "distributed_adam"],
            "2.12.0",
            "13.0",
            r"^distributed_adam of .*group_norm of .*main of",
        ),
        ("main of 2026-07-08", ["cuda_ext", "group_norm"], "2.15.0", "13.2", ""),
    ],
)
def test_a_release_that_does_not_work_with_a_pytorch_is_named_with_the_nearest_that_does(
    tag: str, extensions: list[str], torch: str, cuda: str, said: str
) -> None:
    found = ". ".join(apex_misfits(TAGS[tag], extensions, torch, cuda))
    assert re.search(said, found) if said else found == ""


def test_a_commit_that_is_not_listed_is_not_judged() -> None:
    assert apex_misfits("0" * 40, ["cuda_ext"], "2.14.1", "13.0") == []
