# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which PyTorch a driver runs; the drivers are those of Azure's and NVIDIA's images, the builds the role's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import versions as driving
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.versions import (
    CudaBuild,
    Driver,
    EnvironmentRefused,
)

ROLE = Path(__file__).resolve().parents[5] / "roles/pytorch"
TABLE = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__pytorch_builds"]
BUILDS = driving.builds(TABLE)


def choose(*drivers: Driver, build: str = "auto", python: str = "3.11", machine: str = "x86_64") -> str:
    return driving.choose(BUILDS, build, drivers, python, machine)[0].name


def driver(version: str, *capabilities: str, cuda: str = "", host: str = "c1") -> Driver:
    return Driver(host, version, capabilities, cuda)


@pytest.mark.parametrize(
    ("seen", "build"),
    [
        (driver("595.58.03", "9.0"), "cu132"),
        (driver("580.65.06", "9.0"), "cu130"),
        (driver("580.105.08", "10.0"), "cu130"),
        (driver("570.172.08", "8.0"), "cu128"),
        (driver("560.35.05", "8.0"), "cu126"),
        (driver("550.90.07", "8.0"), "cu126"),  # none natively; the nearest to the driver's own
        (driver("535.104.05", "9.0"), "cu126"),
        (driver("550.90.07", "10.0"), "cu128"),  # the only one of its major with code for it
        (driver("580.65.06", "7.0"), "cu128"),  # CUDA 13 builds have no code for V100
        (driver("580.65.06", "6.0"), "cu126"),
        (driver("570.172.08", "10.3"), "cu128"),  # a B300 runs code for 10.0
        (driver("550.90.07", "9.0", cuda="13.0"), "cu130"),  # forward compatibility package
    ],
)
def test_the_newest_that_the_driver_runs(seen: Driver, build: str) -> None:
    assert choose(seen) == build


@pytest.mark.parametrize("capability", ["6.0", "7.0", "8.0", "9.0", "10.0"])
def test_a_newer_driver_gets_no_older_build(capability: str) -> None:
    versions = sorted({driving.CUDA_MAJORS[12], *driving.CUDA_RELEASES.values()}, key=driving.numbers)
    built = [BUILDS[choose(driver(version, capability))].cuda for version in versions]
    assert built == sorted(built, key=lambda cuda: driving.numbers(cuda or ""))


def test_all_drivers_count() -> None:
    assert choose(driver("595.58.03", "9.0"), driver("570.172.08", "8.0", host="c2")) == "cu128"
    assert choose(driver("595.58.03", "9.0"), driver("595.58.03", "7.0", host="c2")) == "cu128"


def test_without_a_driver_it_is_for_cpus() -> None:
    assert choose() == "cpu"
    assert choose(python="3.12", machine="aarch64") == "cpu"


def test_machine_and_python_count() -> None:
    assert choose(driver("595.58.03", "9.0"), python="3.10") == "cu130"
    assert choose(driver("580.95.05", "10.0"), machine="aarch64") == "cu130"
    with pytest.raises(EnvironmentRefused, match=r"cu128: it is locked for x86_64, not aarch64"):
        choose(driver("570.172.08", "9.0"), machine="aarch64")


@pytest.mark.parametrize(
    ("seen", "build", "said"),
    [
        (
            driver("470.82.01", "8.0"),
            "auto",
            r"no build fits driver 470.82.01. cu126: CUDA 12.6 needs driver 525.60.13 or newer, c1 has driver 470.82",
        ),
        (
            driver("570.172.08", "9.0"),
            "cu130",
            r"cu130 cannot be used: CUDA 13.0 needs driver 580.65.06 or newer, c1 has",
        ),
        (
            driver("580.65.06", "7.0"),
            "cu130",
            r"it has code for GPUs of compute capability 7.5, 8.0, 8.6, 9.0, 10.0, 12.0, c1 has 7.0. Choose",
        ),
        (driver("580.65.06", "7.0"), "cu140", r"there is no build cu140; known: auto, cpu, cu126"),
    ],
)
def test_what_cannot_run_is_refused_with_both_versions(seen: Driver, build: str, said: str) -> None:
    with pytest.raises(EnvironmentRefused, match=said):
        choose(seen, build=build)


def test_a_build_for_cpus_runs_with_any_driver() -> None:
    assert choose(driver("470.82.01", "8.0"), build="cpu") == "cpu"


def test_a_lock_file_of_ones_own_is_chosen_whatever_it_is_for() -> None:
    own = {"mine": CudaBuild("mine", "torch==2.0", None)}
    assert driving.choose(own, "auto", [], "3.9", "ppc64le")[0].name == "mine"
    assert driving.choose(own, "auto", [driver("470.82.01")], "3.9", "x86_64")[0].name == "mine"


def test_a_cuda_that_is_newer_than_this_collection_is_refused() -> None:
    assert driving.driver_problems("14.1", [], driver("700.1", "9.0")) == [
        "CUDA 14.1 needs a driver that this collection does not know, c1 has driver 700.1"
    ]
    assert driving.driver_problems("14.1", [], driver("700.1", "9.0", cuda="14.1")) == []


def test_answers_of_nvidia_smi() -> None:
    (found,) = driving.drivers([{"host": "c1", "text": "550.54.15, 9.0\n550.54.15, 9.0\n"}])
    assert found == Driver("c1", "550.54.15", ["9.0"])
    (found,) = driving.drivers([{"version": "580.65.06"}])
    assert found == Driver("the given driver", "580.65.06", [])


@pytest.mark.parametrize(
    "said",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "[Errno 2] No such file or directory: b'nvidia-smi'",
        "",
        "550.54.15, [N/A]",
    ],
)
def test_no_answer_is_refused(said: str) -> None:
    with pytest.raises(
        EnvironmentRefused, match=f"driver of c1 is not known.*{re.escape(said) or 'nothing'}.*pytorch_build: cpu"
    ):
        driving.drivers([{"host": "c1", "text": said}])


def test_bad_descriptions_are_refused() -> None:
    with pytest.raises(EnvironmentRefused, match="a driver needs its version"):
        driving.drivers([{"version": "latest"}])
    with pytest.raises(EnvironmentRefused, match="build x has unknown coda"):
        driving.builds({"x": {"lock": "", "coda": "12"}})
    with pytest.raises(EnvironmentRefused, match="build x has no lock"):
        driving.builds({"x": {"cuda": "12"}})
