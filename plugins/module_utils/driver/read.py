# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From /proc, /sys, modinfo, dkms and the package database to what a node has of NVIDIA's driver. Changes nothing."""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.model import (
    OPEN,
    PROPRIETARY,
    SWITCHES,
    DriverState,
    Gpu,
    GpuUser,
    Installed,
    is_driver_package,
)

Runner = t.Callable[..., Outcome]

NVIDIA = "0x10de"
# Files of images whose makers decide about the driver, and of NVIDIA's own installer (.run).
IMAGES = {"azure_hpc": ("opt/azurehpc",), "dgx_os": ("etc/dgx-release",)}
INSTALLERS = ("usr/bin/nvidia-uninstall", "usr/bin/nvidia-installer")
# NVIDIA's driver container, as the GPU operator of Kubernetes runs it, mounts its root there.
CONTAINER = "run/nvidia/driver/usr"
# Daemons that come with the driver, or watch it. They are restarted with it and are nobody's job.
DAEMONS = frozenset(
    "nvidia-persiste nv-fabricmanage nv-hostengine nvlsm nvidia-imex nvsm_core dcgm-exporter".split()  # comm cuts them
)
STEP = "slurmstepd"
_DKMS = re.compile(r"nvidia[^,/]*[/,] ?([0-9][^,]*), ([^,]+), \w+: installed")
_VERSION = re.compile(r"\d{3,4}\.\d+(?:\.\d+)?")
DPKG = ["dpkg-query", "--show", "--showformat", "${binary:Package}|${Version}|${db:Status-Abbrev}\\n"]
RPM = ["rpm", "-qa", "--qf", "%{NAME}|%{EVR}|ii\\n"]


def nvrm(text: str) -> tuple[str, str]:
    """Read ``/proc/driver/nvidia/version``: version and flavour of the modules in the kernel."""
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    match = _VERSION.search(line)
    if not match:
        return "", ""
    return match.group(), OPEN if "Open Kernel Module" in line else PROPRIETARY


def licence(text: str) -> str:
    """Return the flavour that ``modinfo --field license`` tells of."""
    return "" if not text.strip() else OPEN if "MIT" in text or "GPL" in text else PROPRIETARY


def dkms_built(text: str, kernel: str) -> tuple[str, ...]:
    """Read ``dkms status``: versions of the driver that are installed for a kernel, in the old and the new form."""
    return tuple(match.group(1) for match in map(_DKMS.match, text.splitlines()) if match and match.group(2) == kernel)


def dpkg_packages(text: str) -> tuple[Installed, ...]:
    """Read ``DPKG``: the driver's packages that are there, half-installed ones included."""
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 2]
    return tuple(
        Installed(name.partition(":")[0], version, status[:1] == "h")
        for name, version, status in rows
        if is_driver_package(name) and status[:1] in "ih" and status[1:2] not in "nc "
    )


def locked(text: str) -> set[str]:
    """Read ``dnf versionlock list``: names of packages that are locked, such as nvidia-driver of
    ``nvidia-driver-3:580.95.05-1.el9.*``."""
    return {match.group(1) for match in re.finditer(r"^([\w.+-]+?)-(?:\d+:)?\d[^-\s]*-[^-\s]+$", text, re.MULTILINE)}


def fabric_version(text: str) -> str:
    """Read ``nv-fabricmanager --version``. Packages of Ubuntu can be empty and bring the program of another branch."""
    match = re.search(r"version is\s*:?\s*([\d.]+)", text)
    return match.group(1) if match else ""


def secure_boot(content: bytes) -> bool:
    """Read the EFI variable SecureBoot: four bytes of attributes, then its value."""
    return len(content) >= 5 and content[4] == 1


class DriverReader:
    """Reads below ``root``; the programs are those of PATH."""

    def __init__(
        self,
        root: str = "/",
        record: str = "",
        held_by_us: t.Sequence[str] = (),
        runner: Runner = run,
        kernel: str = "",
    ) -> None:
        self.root, self.record, self.held_by_us, self._run = Path(root), record, held_by_us, runner
        self.kernel = kernel or self._text("proc/sys/kernel/osrelease").strip()

    def read(self) -> DriverState:
        """Return the driver as it is loaded, on disk and packaged."""
        loaded, loaded_flavour = nvrm(self._text("proc/driver/nvidia/version"))
        module = self._ask(["modinfo", "-k", self.kernel, "--filename", "nvidia"]).strip()
        gpus, switches = self._pci()
        packages = self._packages()
        ours = _owned_files.load(self.record) if self.record else {}
        return DriverState(
            kernel=self.kernel,
            gpus=gpus,
            switches=switches,
            loaded=loaded,
            loaded_flavour=loaded_flavour,
            on_disk=self._modinfo("version", module),
            on_disk_flavour=licence(self._modinfo("license", module)),
            module=module,
            module_owner=self._owner(module, packages),
            dkms=dkms_built(self._ask(["dkms", "status"]), self.kernel),
            library=self._library(),
            fabric_manager=fabric_version(self._ask(["nv-fabricmanager", "--version"])),
            packages=packages,
            images=tuple(kind for kind, paths in IMAGES.items() if any((self.root / path).exists() for path in paths)),
            installer=next((f"/{path}" for path in INSTALLERS if self._unowned(path)), ""),
            container=f"/{CONTAINER}" if (self.root / CONTAINER).is_dir() else "",
            nouveau=bool(re.search(r"^nouveau ", self._text("proc/modules"), re.MULTILINE)),
            headers=(self.root / "lib/modules" / self.kernel / "build").exists(),
            secure_boot=self._secure_boot(),
            users=self.users(),
            ours={**ours, "held": [*self.held_by_us, *ours.get("locked", [])]},
        )

    def users(self) -> tuple[GpuUser, ...]:
        """Return who has GPUs open, its daemons apart, and steps of jobs, which may open one at any moment."""
        users = []
        for process in sorted((path for path in (self.root / "proc").glob("[0-9]*")), key=lambda path: int(path.name)):
            program = self._text(f"proc/{process.name}/comm").strip()
            if program == STEP or (program[:15] not in DAEMONS and self._opens_gpu(process)):
                users.append(GpuUser(int(process.name), program))
        return tuple(users)

    @staticmethod
    def _opens_gpu(process: Path) -> bool:
        try:
            handles = list((process / "fd").iterdir())
        except OSError:  # it ended, or is a thread of the kernel
            return False
        for handle in handles:
            try:
                if os.readlink(handle).startswith("/dev/nvidia"):
                    return True
            except OSError:
                continue
        return False

    def _pci(self) -> tuple[tuple[Gpu, ...], int]:
        gpus, switches = [], 0
        for device in sorted((self.root / "sys/bus/pci/devices").glob("*")):
            words = {
                name: self._text(str(device.relative_to(self.root) / name)).strip()
                for name in ("vendor", "device", "class")
            }
            if words["vendor"] != NVIDIA:
                continue
            number = words["device"][2:].lower()
            if words["class"][:6] in ("0x0300", "0x0302"):
                gpus.append(Gpu(device.name, number))
            elif number in SWITCHES:
                switches += 1
        return tuple(gpus), switches

    def _modinfo(self, what: str, module: str) -> str:
        return self._ask(["modinfo", "-k", self.kernel, "--field", what, "nvidia"]).strip() if module else ""

    def _owner(self, module: str, packages: t.Sequence[Installed]) -> str:
        """Return the package that the module's file is of, or ``dkms`` where DKMS built it of a package's source."""
        if not module:
            return ""
        # These are linked when they are installed, so that no package lists the file.
        linked = [
            package.name
            for package in packages
            if package.name.startswith("linux-modules-nvidia-") and package.name.endswith(self.kernel)
        ]
        if linked:
            return linked[0]
        version = self._modinfo("version", module)
        built = dkms_built(self._ask(["dkms", "status"]), self.kernel)
        source = f"/usr/src/nvidia-{version}"
        if version in built and (self._package_of(source) or self._package_of(f"{source}/dkms.conf")):
            return "dkms"
        return self._package_of(module) or self._package_of(f"/usr{module}")

    def _package_of(self, path: str) -> str:
        for argv in (["dpkg-query", "--search", path], ["rpm", "-qf", "--qf", "%{NAME}: ", path]):
            outcome = self._run(argv, 60)
            if outcome.rc == 0:
                return outcome.out.partition(":")[0].partition(",")[0].strip()
        return ""

    def _unowned(self, path: str) -> bool:
        return (self.root / path).exists() and not self._package_of(f"/{path}")

    def _library(self) -> str:
        """Return the version in the name that libnvidia-ml.so.1 stands for."""
        for directory in (
            "usr/lib/x86_64-linux-gnu",
            "usr/lib/aarch64-linux-gnu",
            "usr/lib64",
            "usr/lib/x86_64-linux-gnu/nvidia/current",
        ):
            try:
                name = (self.root / directory / "libnvidia-ml.so.1").resolve(strict=True).name
            except OSError:
                continue
            match = _VERSION.search(name)
            if match:
                return match.group()
        return ""

    def _packages(self) -> tuple[Installed, ...]:
        packages = dpkg_packages(self._ask(DPKG))
        if packages or self._run(["rpm", "--version"], 60).rc != 0:
            return packages
        names = locked(self._ask(["dnf", "-q", "versionlock", "list"]))
        rpms = dpkg_packages(self._ask(RPM))
        return tuple(Installed(package.name, package.version, package.name in names) for package in rpms)

    def _secure_boot(self) -> bool:
        for path in (self.root / "sys/firmware/efi/efivars").glob("SecureBoot-*"):
            try:
                return secure_boot(path.read_bytes())
            except OSError:
                continue
        return False

    def _text(self, path: str) -> str:
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def _ask(self, argv: list[str]) -> str:
        """Return what a program prints; nothing where there is none or it does not know."""
        outcome = self._run(argv, 60)
        return outcome.out if outcome.rc == 0 else ""
