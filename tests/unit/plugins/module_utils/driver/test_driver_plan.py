# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who manages a driver, which modules its GPUs need, which packages that takes, and why a node has to be rebooted."""

from __future__ import annotations

import json
import types
import typing as t
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver import module, plan
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.model import (
    DriverError,
    DriverRequest,
    DriverState,
    Gpu,
    GpuUser,
    Installed,
    branch,
    fits,
    generation,
    upstream,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.read import DriverReader

REQUEST = DriverRequest("580.105.08")
HOPPER, VOLTA, BLACKWELL = Gpu("0000:18:00.0", "2330"), Gpu("0000:15:00.0", "1db5"), Gpu("0000:1b:00.0", "2901")
CLEAN = DriverState(kernel="6.8.0-85-generic", gpus=(HOPPER,) * 8, switches=4)
# As NVIDIA's CUDA repository for Ubuntu has them.
OLD = (
    Installed("nvidia-dkms-580-open", "580.95.05-0ubuntu1"),
    Installed("libnvidia-compute-580", "580.95.05-0ubuntu1"),
)
RUNNING = replace(
    CLEAN,
    loaded="580.95.05",
    loaded_flavour="open",
    on_disk="580.95.05",
    on_disk_flavour="open",
    module="/lib/modules/6.8.0-85-generic/updates/dkms/nvidia.ko",
    module_owner="dkms",
    packages=OLD,
)


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("1db1", "Volta"),  # V100-SXM2-16GB
        ("1db5", "Volta"),  # V100-SXM2-32GB
        ("1eb8", "Turing"),  # T4
        ("20b2", "Ampere"),  # A100-SXM4-80GB
        ("2236", "Ampere"),  # A10
        ("26b9", "Ada Lovelace"),  # L40S
        ("2330", "Hopper"),  # H100-SXM5-80GB
        ("2335", "Hopper"),  # H200-SXM5-141GB
        ("2342", "Grace Hopper"),  # GH200
        ("2901", "Blackwell"),  # B200
        ("2941", "Blackwell"),  # GB200
        ("3182", "Blackwell"),  # B300
    ],
)
def test_a_device_id_tells_the_generation(device: str, name: str) -> None:
    known = generation(device)
    assert known is not None
    assert known.name == name


def test_an_nvswitch_is_of_no_generation_of_gpus() -> None:
    assert generation("22a3") is None
    assert generation("1ac2") is None


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("580.95.05-0ubuntu1", "580.95.05"),
        ("3:580.95.05-1.el9", "580.95.05"),
        ("580.105.08-1", "580.105.08"),
        ("580.142", "580.142"),
        ("550.163.01-4~bpo13+1", "550.163.01"),
    ],
)
def test_nvidias_version_in_a_package_version(version: str, expected: str) -> None:
    assert upstream(version) == expected


@pytest.mark.parametrize("version", ["", "latest", "12.8", "58", "open"])
def test_what_is_no_version_of_a_driver_is_refused(version: str) -> None:
    with pytest.raises(DriverError, match="no branch such as 580"):
        branch(version)


def test_a_branch_fits_its_versions_only() -> None:
    assert fits("580", "580.95.05-1")
    assert fits("580.95.05", "3:580.95.05-1.el9")
    assert not fits("58", "580.95.05-1")
    assert not fits("580.9", "580.95.05-1")


@pytest.mark.parametrize(
    ("gpus", "version", "wish", "expected"),
    [
        ([HOPPER], "580", "auto", "open"),
        ([HOPPER], "580", "proprietary", "proprietary"),
        ([VOLTA], "580", "auto", "proprietary"),
        ([BLACKWELL], "580", "auto", "open"),
        ([VOLTA, HOPPER], "580", "auto", "proprietary"),
        ([HOPPER], "470", "auto", "proprietary"),
        ([HOPPER], "620", "auto", "open"),
        ([], "580", "auto", "open"),
        ([Gpu("0000:01:00.0", "ffff")], "580", "open", "open"),
    ],
)
def test_gpus_get_the_modules_that_serve_them(gpus: list[Gpu], version: str, wish: str, expected: str) -> None:
    assert plan.flavour(replace(CLEAN, gpus=tuple(gpus)), DriverRequest(version, wish)) == expected


@pytest.mark.parametrize(
    ("gpus", "version", "wish", "text"),
    [
        ([VOLTA], "590", "auto", "580 is the last branch for Volta"),
        ([VOLTA], "580", "open", "Volta GPUs need the proprietary kernel modules"),
        ([BLACKWELL], "580", "proprietary", "Blackwell GPUs need the open kernel modules"),
        ([VOLTA, BLACKWELL], "580", "auto", "cannot serve both"),
        ([HOPPER], "620", "proprietary", "removed them with 620"),
        ([BLACKWELL], "470", "auto", "branch 470 has no open"),
        ([Gpu("0000:01:00.0", "ffff")], "580", "auto", "10de:ffff is not known"),
    ],
)
def test_modules_that_cannot_serve_the_gpus_are_refused(gpus: list[Gpu], version: str, wish: str, text: str) -> None:
    with pytest.raises(DriverError, match=text):
        plan.flavour(replace(CLEAN, gpus=tuple(gpus)), DriverRequest(version, wish))


OURS = {"packages": {"nvidia-dkms-580-open": "580.95.05-0ubuntu1"}, "before": {}}


@pytest.mark.parametrize(
    ("state", "kinds"),
    [
        (CLEAN, []),
        (replace(CLEAN, images=("azure_hpc",)), ["azure_hpc"]),
        (replace(CLEAN, images=("dgx_os",)), ["dgx_os"]),
        (replace(CLEAN, container="/run/nvidia/driver/usr"), ["container"]),
        (replace(RUNNING, installer="/usr/bin/nvidia-uninstall", module_owner="", packages=()), ["runfile"]),
        (replace(RUNNING, module_owner="", packages=()), ["unpackaged"]),
        (RUNNING, ["packages"]),
        (replace(RUNNING, ours=OURS), []),
        # Somebody has upgraded what this role installed.
        (replace(RUNNING, ours={**OURS, "packages": {"nvidia-dkms-580-open": "580.82.07-0ubuntu1"}}), ["packages"]),
        # A run that was killed before the packages came: what it met is known.
        (
            replace(
                RUNNING,
                ours={
                    "packages": {"nvidia-dkms-580-open": "580.105.08-0ubuntu1"},
                    "before": {"nvidia-dkms-580-open": "580.95.05-0ubuntu1"},
                },
            ),
            [],
        ),
        (replace(RUNNING, packages=(Installed("nvidia-driver-550", "550.90-1", True),)), ["held", "packages"]),
        (
            replace(
                RUNNING,
                packages=(Installed("nvidia-dkms-580-open", "580.95.05-0ubuntu1", True),),
                ours={**OURS, "held": ["nvidia-dkms-580-open"]},
            ),
            [],
        ),
        (replace(RUNNING, packages=(Installed("nvidia-dkms-580-open", "580.105.08-0ubuntu1"),)), []),
        (replace(RUNNING, packages=(Installed("libnvidia-container1", "1.18.0-1"),)), []),
    ],
)
def test_a_driver_of_somebody_else_is_told(state: DriverState, kinds: list[str]) -> None:
    assert [one.kind for one in plan.managers(state, REQUEST)] == kinds


def test_a_driver_is_taken_over_when_that_is_said_and_never_from_a_run_file() -> None:
    image = replace(RUNNING, images=("azure_hpc",), installer="/usr/bin/nvidia-uninstall", module_owner="")
    said = replace(REQUEST, take_over=("azure_hpc", "packages", "held"))
    assert [one.kind for one in plan.managers(image, said)] == ["runfile"]
    refused = plan.refusals(replace(image, installer="", module_owner="dkms"), said)
    assert refused == []
    assert "nvidia-uninstall" in plan.refusals(image, said)[0]
    assert "add azure_hpc to nvidia_driver_take_over" in plan.refusals(image, REQUEST)[0]


def test_secure_boot_is_refused_until_a_key_is_enrolled() -> None:
    assert "Secure Boot" in plan.refusals(replace(CLEAN, secure_boot=True), REQUEST)[0]
    assert plan.refusals(replace(CLEAN, secure_boot=True), replace(REQUEST, mok_enrolled=True)) == []
    assert plan.refusals(replace(RUNNING, secure_boot=True, ours=OURS), REQUEST) == []


TABLE = [
    ["nvidia-dkms-open", "nvidia-dkms-{branch}-open"],
    ["libnvidia-compute", "libnvidia-compute-{branch}"],
    ["nvidia-fabricmanager", "nvidia-fabricmanager-{branch}"],
]
OFFERS = {
    "nvidia-dkms-580-open": ["580.105.08-0ubuntu1", "580.95.05-0ubuntu1"],
    "libnvidia-compute-580": ["580.105.08-0ubuntu1", "580.95.05-0ubuntu1"],
    "nvidia-fabricmanager-580": ["580.95.05-1"],
    "nvidia-dkms-open": ["620.10.01-1ubuntu1"],
    "libnvidia-compute": ["620.10.01-1ubuntu1"],
    "nvidia-fabricmanager": ["620.10.01-1ubuntu1", "580.105.08-1"],
}


def test_all_parts_get_one_version_whatever_they_are_called() -> None:
    chosen = plan.choose("580", TABLE, OFFERS, {})
    assert chosen.version == "580.105.08"
    assert chosen.words() == [
        "libnvidia-compute-580=580.105.08-0ubuntu1",
        "nvidia-dkms-580-open=580.105.08-0ubuntu1",
        "nvidia-fabricmanager=580.105.08-1",
    ]


def test_an_optional_part_comes_along_in_the_same_version_or_not_at_all() -> None:
    optional = [["nvidia-persistenced", "nvidia-compute-utils-{branch}"]]
    offers = {**OFFERS, "nvidia-persistenced": ["620.10.01-1ubuntu1"]}
    assert "nvidia-persistenced" not in plan.choose("580", TABLE, offers, {}, optional).install
    offers["nvidia-persistenced"].append("580.105.08-1")
    assert plan.choose("580", TABLE, offers, {}, optional).install["nvidia-persistenced"] == "580.105.08-1"


def test_a_version_without_a_fabric_manager_is_passed_over() -> None:
    offers = {**OFFERS, "nvidia-fabricmanager": ["620.10.01-1ubuntu1"]}
    assert plan.choose("580", TABLE, offers, {}).version == "580.95.05"
    with pytest.raises(DriverError, match=r"fits 580\.105\.08.*nvidia-fabricmanager-580: 620\.10\.01, 580\.95\.05"):
        plan.choose("580.105.08", TABLE, offers, {})


def test_what_is_installed_and_fits_stays() -> None:
    have = {"nvidia-dkms-580-open": "580.95.05-0ubuntu1", "libnvidia-compute-580": "580.95.05-0ubuntu1"}
    chosen = plan.choose("580", TABLE, OFFERS, have)
    assert (chosen.version, chosen.changes) == ("580.95.05", True)  # the fabric manager is missing yet
    complete = {**have, "nvidia-fabricmanager-580": "580.95.05-1"}
    assert not plan.choose("580", TABLE, {}, complete).changes  # also where no repository has it any more
    assert plan.choose("580.105.08", TABLE, OFFERS, complete).version == "580.105.08"


def test_versions_are_ordered_by_number() -> None:
    offers = {"nvidia-dkms-open": ["590.48.01-1", "590.105.08-1", "590.95.05-1"]}
    assert plan.choose("590", [["nvidia-dkms-open"]], offers, {}).version == "590.105.08"


def test_a_plan_that_removes_packages_of_others_is_told() -> None:
    removed = ["nvidia-dkms-570", "libnvidia-gl-570:amd64", "slurmd", "cuda-toolkit-12-8"]
    assert plan.foreign_removals(removed) == ["slurmd", "cuda-toolkit-12-8"]


def test_who_uses_the_gpus_is_named() -> None:
    state = replace(RUNNING, users=(GpuUser(7, "python3"), GpuUser(9, "slurmstepd")))
    assert "python3 (pid 7), slurmstepd (pid 9)" in plan.in_use(state)
    assert plan.in_use(RUNNING) == ""


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (RUNNING, []),
        (CLEAN, []),
        (replace(RUNNING, on_disk="580.105.08"), ["580.95.05 loaded", "580.105.08 is installed"]),
        (replace(RUNNING, loaded_flavour="proprietary"), ["proprietary modules loaded"]),
        (replace(RUNNING, loaded="", loaded_flavour="", nouveau=True), ["nouveau"]),
        (replace(RUNNING, loaded="", loaded_flavour=""), []),  # it can be loaded as it is
    ],
)
def test_a_reboot_is_asked_for_with_its_reason(state: DriverState, words: list[str]) -> None:
    text = "; ".join(plan.reboot_reasons(state))
    assert bool(text) == bool(words)
    assert all(word in text for word in words)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            replace(
                RUNNING, loaded="580.105.08", on_disk="580.105.08", library="580.105.08", fabric_manager="580.105.08"
            ),
            [],
        ),
        (
            replace(RUNNING, loaded="", on_disk="580.105.08", fabric_manager="580.105.08"),
            ["no NVIDIA driver is loaded"],
        ),
        (replace(RUNNING, fabric_manager="580.95.05"), ["driver 580.95.05 is loaded, not 580.105.08"]),
        # A package of Ubuntu for branch 570 brings the program of 580.
        (
            replace(RUNNING, loaded="580.105.08", on_disk="580.105.08", fabric_manager="580.95.05"),
            ["the fabric manager is 580.95.05, and driver 580.105.08"],
        ),
        (replace(RUNNING, loaded="580.105.08", on_disk="580.105.08"), ["there is no fabric manager"]),
        (
            replace(
                RUNNING, loaded="580.105.08", on_disk="580.105.08", library="580.95.05", fabric_manager="580.105.08"
            ),
            ["libnvidia-ml is of driver 580.95.05"],
        ),
    ],
)
def test_what_disagrees_after_the_reboot_is_a_fault(state: DriverState, words: list[str]) -> None:
    text = "; ".join(plan.faults(state, REQUEST, fabric_manager=True))
    assert bool(text) == bool(words)
    assert all(word in text for word in words)


PLAN = plan.PackagePlan("580.105.08", {"nvidia-dkms-580-open": "580.105.08-0ubuntu1"}, changes=True)
INSTALLED = replace(RUNNING, on_disk="580.105.08", fabric_manager="580.105.08")


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (
            replace(INSTALLED, on_disk="580.95.05"),
            "has open modules of 580.95.05 instead of the open modules of 580.105.08",
        ),
        (replace(INSTALLED, on_disk_flavour="proprietary"), "has proprietary modules of 580.105.08"),
        (replace(INSTALLED, on_disk=""), "has no module"),
        (replace(INSTALLED, fabric_manager="580.159.03"), "nv-fabricmanager says that it is 580.159.03"),
        (replace(INSTALLED, fabric_manager=""), "says that it is nothing"),
    ],
)
def test_packages_that_brought_something_else_are_no_success(state: DriverState, text: str) -> None:
    with pytest.raises(DriverError, match=text):
        module.prove(state, "open", PLAN, replace(REQUEST, fabric_manager=True))


def test_packages_that_brought_what_they_say_are() -> None:
    module.prove(INSTALLED, "open", PLAN, replace(REQUEST, fabric_manager=True))
    module.prove(replace(INSTALLED, fabric_manager=""), "open", PLAN, REQUEST)


def test_locks_of_dnf_are_set_by_state_present_alone_and_ours_in_the_next_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    locked: list[t.Sequence[str]] = []
    worker = types.SimpleNamespace(
        mark="-",
        locks=True,
        refresh=lambda age: None,
        offers=lambda names: {},
        installed=lambda names: {one.name: one.version for one in OLD},
        lock=lambda names, theirs: locked.append(names),
    )
    monkeypatch.setattr(module, "tool", lambda params, kind: worker)
    monkeypatch.setattr(module, "read", lambda params: (None, RUNNING))
    catalog = {"open": [["nvidia-dkms-580-open"]], "common": [["libnvidia-compute-580"]], "optional": []}
    params = {
        **{name: option.get("default") for name, option in module.SPEC.items()},
        "version": "580",
        "catalog": {"proprietary": [], "fabric_manager": [], "headers": [], "streams": {}, **catalog},
        "record": str(tmp_path / "record.json"),
    }
    assert not module.perform({**params, "state": "planned"}, check_mode=False)["changed"]
    assert not module.perform({**params, "state": "downloaded"}, check_mode=False)["changed"]
    assert module.perform(params, check_mode=True)["changed"]
    assert locked == []
    assert module.perform(params, check_mode=False)["changed"]
    names = [one.name for one in OLD]
    assert locked == [names]
    assert json.loads(Path(params["record"]).read_text()) == {"locked": sorted(names)}
    ours = DriverReader(str(tmp_path), record=params["record"], kernel="none").read().ours
    assert set(names) <= set(ours["held"])
    held = tuple(replace(one, held=True) for one in OLD)
    assert plan.managers(replace(RUNNING, packages=held, ours=ours), DriverRequest("580")) == []
