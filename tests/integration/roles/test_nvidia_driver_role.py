# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role with real apt and dpkg below a directory, against a signed repository of small packages."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from driver_machine import ARCHITECTURE, KERNEL, NEW, OLD, Node, Repository

pytestmark = pytest.mark.skipif(
    not (shutil.which("apt-get") and shutil.which("gpg")) or ARCHITECTURE != "amd64",
    reason="needs apt and gpg on amd64",
)
DRIVER = {
    "libnvidia-ml1",
    "nvidia-driver-cuda",
    "nvidia-fabricmanager",
    "nvidia-kernel-open-dkms",
    "nvidia-persistenced",
}


@pytest.fixture(name="repository", scope="module")
def fixture_repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("archive") / "repository")


@pytest.fixture(name="node")
def fixture_node(tmp_path: Path, repository: Repository) -> Node:
    return Node(tmp_path, repository, "nvidia_driver")


def recap(output: str) -> tuple[int, int]:
    match = re.search(r"changed=(\d+) .*failed=(\d+)", output)
    assert match, output
    return int(match.group(1)), int(match.group(2))


def test_a_bare_node_gets_one_version_of_all_and_keeps_it(node: Node) -> None:
    would = node.play("nvidia_driver", "--check")
    assert recap(would.stdout)[1] == 0, would.stdout + would.stderr
    assert node.packages() == {}
    done = node.play("nvidia_driver")
    assert recap(done.stdout)[1] == 0, done.stdout + done.stderr
    packages = node.packages()
    # The repository has a newer branch, without a fabric manager; the pin keeps its dependencies away.
    assert {name: packages[name] for name in DRIVER} == dict.fromkeys(DRIVER, f"{NEW}-1 hold")
    assert packages["datacenter-gpu-manager-4-cuda13"] == "1:4.4.2-1 hold"
    assert (node.result["flavour"], node.result["reboot_required"]) == ("open", False)
    assert NEW in (node.root / "proc/driver/nvidia/version").read_text()
    active = {path.stem for path in (node.root / "units").glob("*.active")}
    assert active == {"nvidia-persistenced", "nvidia-fabricmanager", "nvidia-dcgm"}
    assert not (node.root / "usr/sbin/policy-rc.d").exists()
    again = node.play("nvidia_driver")
    assert recap(again.stdout) == (0, 0), again.stdout


def test_another_version_waits_for_the_gpus_and_then_for_a_reboot(node: Node) -> None:
    node.add_repository()
    assert node.module("nvidia_driver", version=OLD)["changed"]
    node.reboot()
    (node.root / "proc/4711/fd").mkdir(parents=True)
    node.write("proc/4711/comm", "python3\n")
    (node.root / "proc/4711/fd/3").symlink_to("/dev/nvidia0")
    assert node.module("nvidia_driver", state="downloaded")["changes"]  # below jobs
    used = node.module("nvidia_driver")
    assert used["failed"]
    assert "python3 (pid 4711)" in used["msg"]
    assert node.packages()["nvidia-kernel-open-dkms"].startswith(OLD)
    shutil.rmtree(node.root / "proc/4711")
    would = node.module("nvidia_driver", check=True)
    assert (would["changed"], would["reboot_required"]) == (True, True)
    done = node.module("nvidia_driver")
    assert {version.split()[0] for version in node.packages().values()} == {f"{NEW}-1"}
    assert done["reboot_reasons"] == [f"the kernel has driver {OLD} loaded, and {NEW} is installed"]
    # Until then it is said again, and there is nothing to change.
    again = node.module("nvidia_driver")
    assert (again["changed"], again["reboot_required"]) == (False, True)
    node.reboot()
    assert not node.module("nvidia_driver")["reboot_required"]
    proof = node.module("nvidia_driver_info", version=NEW, fabric_manager=True, proof=True)
    assert (proof["faults"], proof["fabric_manager"]) == ([], NEW)


def test_volta_gets_the_proprietary_modules(node: Node) -> None:
    for path in (node.root / "sys/bus/pci/devices").glob("*/device"):
        path.write_text("0x1db5\n" if "2330" in path.read_text() else "0x1ac2\n")
    node.add_repository()
    assert node.module("nvidia_driver")["flavour"] == "proprietary"
    assert "nvidia-kernel-dkms" in node.packages()
    assert "620 is newer" in node.module("nvidia_driver", version="620")["msg"]


@pytest.mark.parametrize(("place", "kind"), [("opt/azurehpc", "azure_hpc"), ("etc/dgx-release", "dgx_os")])
def test_an_image_that_brings_its_driver_is_not_touched(node: Node, place: str, kind: str) -> None:
    node.add_repository()
    (node.root / place).mkdir(parents=True)
    assert f"add {kind} to nvidia_driver_take_over" in node.module("nvidia_driver")["msg"]
    assert node.packages() == {}
    assert node.module("nvidia_driver", take_over=[kind])["changed"]


def test_what_an_administrator_installed_upgraded_or_holds_is_theirs(node: Node) -> None:
    node.add_repository()
    assert node.module("nvidia_driver", version=OLD)["changed"]
    node.apt("install", *(f"{name}={NEW}-1" for name in sorted(DRIVER)))
    assert "is installed, and not by this role" in node.module("nvidia_driver", version=OLD)["msg"]
    node.mark("hold", "nvidia-driver-cuda")
    assert "an administrator holds nvidia-driver-cuda" in node.module("nvidia_driver", version=OLD)["msg"]
    assert node.packages()["nvidia-driver-cuda"] == f"{NEW}-1 hold"


def test_a_plan_that_removes_packages_of_others_is_refused(node: Node) -> None:
    node.add_repository()
    assert node.module("nvidia_driver", version=OLD)["changed"]
    node.apt("install", "site-tool")
    assert "would remove site-tool" in node.module("nvidia_driver")["msg"]
    assert node.module("nvidia_driver", state="planned")["problem"].endswith("which is no part of the driver")
    assert "site-tool" in node.packages()


def test_packages_without_a_module_for_the_kernel_are_no_success(node: Node) -> None:
    node.add_repository()
    (node.root / "no-compiler").touch()
    failed = node.module("nvidia_driver")
    assert f"the kernel {KERNEL} has no module" in failed["msg"]
    assert "make.log" in failed["msg"]


def test_apt_itself_refuses_packages_that_the_key_did_not_sign(
    node: Node, repository: Repository, tmp_path: Path
) -> None:
    node.add_repository()
    other = Repository(tmp_path / "other/repository")
    shutil.copy(other.folder / "key.pub", tmp_path / "key.pub")
    key = node.root / "etc/apt/keyrings/hpcai-nvidia-cuda.gpg"
    subprocess.run(
        ["gpg", "--dearmor", "--yes", "--output", key, tmp_path / "key.pub"], check=True, capture_output=True
    )
    assert "apt-get update -o DPkg::Lock::Timeout=300 failed" in node.module("nvidia_driver")["msg"]
    assert node.packages() == {}
