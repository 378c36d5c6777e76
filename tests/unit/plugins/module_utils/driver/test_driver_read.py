# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What /proc, /sys, modinfo, dkms and the package database print, and what is read of it."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver import read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.apply import DnfTool, evrs, pin, transaction
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.model import (
    DriverError,
    Installed,
    is_driver_package,
)

KERNEL = "6.8.0-85-generic"
# As NVIDIA's modules print it (NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia/nv-procfs.c).
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
    "  (dvs-builder@U22-I3-AD05-51-5)  Tue Mar  3 19:14:46 UTC 2026\n"
    "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04.1)\n"
)
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.216.03  Thu Apr  3 01:14:19 UTC 2025\nGCC version:\n"
DPKG = """\
libnvidia-compute-580:amd64|580.95.05-0ubuntu1|ii 
libnvidia-container1:amd64|1.18.0-1|hi 
nvidia-dkms-580-open|580.95.05-0ubuntu1|hi 
nvidia-driver-550|550.90.07-0ubuntu1|rc 
nvidia-fabricmanager-580|580.95.05-1|iF 
nvidia-container-toolkit|1.18.0-1|ii 
datacenter-gpu-manager-4-core|1:4.4.2-1|ii 
"""  # noqa: W291 - dpkg's status has a space where there is no error


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OPEN, ("580.95.05", "open")),
        (PROPRIETARY, ("535.216.03", "proprietary")),
        ("", ("", "")),
        ("GCC version:  gcc version 13.3.0\n", ("", "")),
    ],
)
def test_the_driver_in_the_kernel_says_version_and_flavour(text: str, expected: tuple[str, str]) -> None:
    assert read.nvrm(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("Dual MIT/GPL\n", "open"), ("NVIDIA\n", "proprietary"), ("", "")])
def test_a_module_s_licence_tells_its_flavour(text: str, expected: str) -> None:
    assert read.licence(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"nvidia/580.95.05, {KERNEL}, x86_64: installed\n", ("580.95.05",)),  # dkms 3
        (f"nvidia, 535.216.03, {KERNEL}, x86_64: installed\n", ("535.216.03",)),  # dkms 2
        (f"nvidia-current/550.163.01, {KERNEL}, x86_64: installed\n", ("550.163.01",)),  # Debian
        (f"nvidia/580.95.05, {KERNEL}, x86_64: built\n", ()),
        ("nvidia/580.95.05, 6.8.0-40-generic, x86_64: installed\n", ()),
        ("nvidia/580.95.05: added\n", ()),
        (f"mlnx-ofed-kernel/24.10, {KERNEL}, x86_64: installed\n", ()),
    ],
)
def test_what_dkms_built_for_the_running_kernel(text: str, expected: tuple[str, ...]) -> None:
    assert read.dkms_built(text, KERNEL) == expected


def test_packages_of_the_driver_and_their_holds() -> None:
    assert read.dpkg_packages(DPKG) == (
        Installed("libnvidia-compute-580", "580.95.05-0ubuntu1"),
        Installed("nvidia-dkms-580-open", "580.95.05-0ubuntu1", held=True),
        Installed("nvidia-fabricmanager-580", "580.95.05-1"),
    )


@pytest.mark.parametrize(
    "name",
    [
        *("nvidia-driver-cuda", "nvidia-open", "nvidia-kernel-open-dkms", "nvidia-open-kernel-dkms", "libcuda1"),
        *("kmod-nvidia-open-dkms", "nvidia-headless-580-server-open", "nvidia-fabric-manager", "firmware-nvidia-gsp"),
        *("linux-modules-nvidia-580-server-open-6.8.0-85-generic", "nvidia-persistenced", "cuda-drivers-580"),
    ],
)
def test_names_of_the_driver_are_known(name: str) -> None:
    assert is_driver_package(name)


@pytest.mark.parametrize(
    "name",
    [
        *("nvidia-container-toolkit", "libnvidia-container1", "libnvidia-container-tools", "nvidia-cuda-toolkit"),
        *("datacenter-gpu-manager-4-core", "cuda-toolkit-13-0", "nvidia-settings-legacy", "openssh-server"),
    ],
)
def test_names_of_others_are_not(name: str) -> None:
    assert not is_driver_package(name)


def test_the_fabric_manager_says_what_it_is() -> None:
    assert read.fabric_version("\n\n\tFabric Manager version is : 535.161.08\n\n") == "535.161.08"
    assert read.fabric_version("") == ""


def test_secure_boot_is_the_byte_after_the_attributes() -> None:
    assert read.secure_boot(b"\x06\x00\x00\x00\x01")
    assert not read.secure_boot(b"\x06\x00\x00\x00\x00")
    assert not read.secure_boot(b"")


def test_locks_of_dnf_are_read_by_name() -> None:
    text = "kmod-nvidia-open-dkms-3:580.95.05-1.el9.*\nnvidia-driver-cuda-3:580.95.05-1.el9.*\n"
    assert read.locked(text) == {"kmod-nvidia-open-dkms", "nvidia-driver-cuda"}


def test_dnf_offers_the_highest_first() -> None:
    text = "nvidia-driver-cuda|3:580.95.05-1.el9\nnvidia-driver-cuda|3:580.105.08-1.el9\npackage x is not installed\n"
    assert evrs(text) == {"nvidia-driver-cuda": ["3:580.105.08-1.el9", "3:580.95.05-1.el9"]}


def test_a_table_of_dnf_tells_what_comes_and_what_goes() -> None:
    text = """\
==========================================================================================
 Package                    Arch     Version                 Repository              Size
==========================================================================================
Installing:
 nvidia-driver-cuda         x86_64   3:580.105.08-1.el9      cuda-rhel9-x86_64      1.0 M
Removing dependent packages:
 slurm-slurmd               x86_64   25.05.1-1.el9           @site                  9.0 M

Transaction Summary
==========================================================================================
"""
    moved, removed = transaction(text)
    assert moved == [{"name": "nvidia-driver-cuda", "before": "", "after": "3:580.105.08-1.el9"}]
    assert removed == ["slurm-slurmd"]


def test_dnf_enables_the_stream_of_the_branch_with_the_installation_alone() -> None:
    calls: list[str] = []

    def run(argv: t.Sequence[str], *dummy: t.Any, **more: t.Any) -> Outcome:
        calls.append(" ".join(argv))
        return Outcome(1 if "--assumeno" in argv else 0, "Operation aborted.\n", "", 0)

    tool = DnfTool("580-open", runner=run)
    words = ["nvidia-driver-cuda-3:580.105.08-1.el9"]
    assert tool.effect(words) == ([], [])
    tool.download(words)
    assert not [call for call in calls if " module " in call]
    tool.install(words)
    tool.lock(["nvidia-driver-cuda"], [])
    assert calls[-4:] == [
        "dnf -y -q module reset nvidia-driver",
        "dnf -y -q module enable nvidia-driver:580-open",
        f"dnf -y -q --disableplugin=versionlock --setopt=install_weak_deps=False --allowerasing install {words[0]}",
        "dnf -q versionlock add nvidia-driver-cuda",
    ]


def test_a_new_version_is_found_past_our_locks_and_locked_in_their_place() -> None:
    calls: list[str] = []

    def run(argv: t.Sequence[str], *dummy: t.Any, **more: t.Any) -> Outcome:
        calls.append(" ".join(argv))
        return Outcome(0, "", "", 0)

    tool = DnfTool(runner=run)
    tool.offers(["kmod-nvidia-open-dkms"])
    assert "--disableplugin=versionlock" in calls[-1]
    tool.lock(["kmod-nvidia-open-dkms", "nvidia-driver-cuda"], ["kmod-nvidia-open-dkms"])
    assert calls[-2:] == [
        "dnf -q versionlock delete kmod-nvidia-open-dkms",
        "dnf -q versionlock add kmod-nvidia-open-dkms nvidia-driver-cuda",
    ]


def test_dnf_that_cannot_install_says_why() -> None:
    said = """\
Error:
 Problem: package kmod-nvidia-open-dkms-3:580.105.08-1.el9.noarch requires dkms, but none can be installed
  - nothing provides dkms needed by kmod-nvidia-open-dkms-3:580.105.08-1.el9.noarch
(try to add '--skip-broken' to skip uninstallable packages or '--nobest' to use not only best candidate packages)
"""

    def run(argv: t.Sequence[str], *dummy: t.Any, **more: t.Any) -> Outcome:
        return Outcome(1, "", said, 0)

    with pytest.raises(DriverError, match=r"none can be installed; nothing provides dkms needed by [^;(]*$"):
        DnfTool(runner=run).effect(["nvidia-driver-cuda-3:580.105.08-1.el9"])


def test_a_pin_is_for_one_version_of_all_packages() -> None:
    assert pin("580.95.05").splitlines()[1:] == ["Pin: version 580.95.05-*", "Pin-Priority: 1001"]


class Machine:
    """A node's files below a directory, and what its programs print."""

    def __init__(self, root: Path) -> None:
        self.root, self.answers = root, t.cast("dict[str, str]", {})
        self.write("proc/sys/kernel/osrelease", f"{KERNEL}\n")

    def write(self, path: str, text: str = "") -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def device(self, address: str, vendor: str, device: str, kind: str) -> None:
        for name, text in (("vendor", vendor), ("device", device), ("class", kind)):
            self.write(f"sys/bus/pci/devices/{address}/{name}", f"{text}\n")

    def process(self, pid: int, program: str, *opens: str) -> None:
        self.write(f"proc/{pid}/comm", f"{program[:15]}\n")
        (self.root / f"proc/{pid}/fd").mkdir()
        for number, path in enumerate(opens):
            (self.root / f"proc/{pid}/fd/{number}").symlink_to(path)

    def run(self, argv: t.Sequence[str], *dummy: t.Any, **more: t.Any) -> Outcome:
        out = next((out for words, out in self.answers.items() if " ".join(argv).startswith(words)), None)
        return Outcome(1, "", "", 0) if out is None else Outcome(0, out, "", 0)

    def read(self) -> read.DriverState:
        return read.DriverReader(str(self.root), runner=self.run).read()


@pytest.fixture(name="machine")
def fixture_machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.device("0000:18:00.0", "0x10de", "0x2330", "0x030200")
    machine.device("0000:05:00.0", "0x10de", "0x22a3", "0x068000")
    machine.device("0000:06:00.0", "0x1a03", "0x2000", "0x030000")
    return machine


def test_a_bare_machine_has_gpus_and_no_driver(machine: Machine) -> None:
    state = machine.read()
    assert [(gpu.address, gpu.device, gpu.generation) for gpu in state.gpus] == [("0000:18:00.0", "2330", "Hopper")]
    assert (state.switches, state.loaded, state.module, state.packages) == (1, "", "", ())
    assert not state.headers


def test_a_module_of_dkms_belongs_to_the_package_of_its_source(machine: Machine) -> None:
    machine.answers = {
        f"modinfo -k {KERNEL} --filename": f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko\n",
        f"modinfo -k {KERNEL} --field version": "580.95.05\n",
        f"modinfo -k {KERNEL} --field license": "Dual MIT/GPL\n",
        "dkms status": f"nvidia/580.95.05, {KERNEL}, x86_64: installed\n",
        "dpkg-query --search /usr/src/nvidia-580.95.05": "nvidia-dkms-580-open: /usr/src/nvidia-580.95.05\n",
    }
    state = machine.read()
    assert (state.on_disk, state.on_disk_flavour, state.module_owner) == ("580.95.05", "open", "dkms")
    del machine.answers["dpkg-query --search /usr/src/nvidia-580.95.05"]
    assert machine.read().module_owner == ""  # what NVIDIA's .run file gave to DKMS


def test_modules_that_ubuntu_links_belong_to_their_package(machine: Machine) -> None:
    name = f"linux-modules-nvidia-580-server-open-{KERNEL}"
    machine.answers = {
        f"modinfo -k {KERNEL} --filename": f"/lib/modules/{KERNEL}/kernel/nvidia-580srv-open/nvidia.ko\n",
        "dpkg-query --show": f"{name}|6.8.0-85.85|ii \n",
    }
    assert machine.read().module_owner == name


def test_processes_on_gpus_and_steps_of_jobs_are_users(machine: Machine) -> None:
    machine.process(100, "nvidia-persistenced", "/dev/nvidia0", "/dev/nvidiactl")
    machine.process(101, "nv-fabricmanager", "/dev/nvidia-nvswitchctl")
    machine.process(102, "slurmd")
    assert machine.read().users == ()
    machine.process(4711, "python3", "/dev/null", "/dev/nvidia3")
    machine.process(4712, "slurmstepd")  # its job may open a GPU at any moment
    machine.process(4713, "bash", "/dev/pts/0")
    assert [(user.pid, user.program) for user in machine.read().users] == [(4711, "python3"), (4712, "slurmstepd")]


def test_a_run_file_s_program_is_nobody_s_package(machine: Machine) -> None:
    machine.write("usr/bin/nvidia-uninstall")
    assert machine.read().installer == "/usr/bin/nvidia-uninstall"
    machine.answers = {"dpkg-query --search /usr/bin/nvidia-uninstall": "site-nvidia: /usr/bin/nvidia-uninstall\n"}
    assert machine.read().installer == ""


def test_images_and_containers_are_seen(machine: Machine) -> None:
    (machine.root / "opt/azurehpc").mkdir(parents=True)
    machine.write("etc/dgx-release")
    (machine.root / "run/nvidia/driver/usr").mkdir(parents=True)
    state = machine.read()
    assert (state.images, state.container) == (("azure_hpc", "dgx_os"), "/run/nvidia/driver/usr")


def test_the_library_s_version_is_in_its_name(machine: Machine) -> None:
    machine.write("usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05")
    os.symlink("libnvidia-ml.so.580.95.05", machine.root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")  # noqa: PTH211
    machine.write("proc/modules", "nouveau 3096576 0 - Live 0x0\n")
    assert (machine.read().library, machine.read().nouveau) == ("580.95.05", True)
