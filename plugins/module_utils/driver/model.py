# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node has of NVIDIA's driver, what is requested of it, and what follows from the generation of its GPUs."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

Json = t.Dict[str, t.Any]

OPEN, PROPRIETARY, AUTO = "open", "proprietary", "auto"
# Branch 580 is the last one for Maxwell, Pascal and Volta, whose GPUs the open modules do not know (NVIDIA driver
# installation guide, Kernel Modules). From 620 on there are open modules only (guide of 620, Recent Updates).
LAST_OLD_BRANCH = 580
LAST_PROPRIETARY_BRANCH = 619
FIRST_OPEN_BRANCH = 515
# Bridges of class 0680; those of HGX B200 and later are behind ConnectX-7 functions and no PCI devices of their own
# (NVIDIA Fabric Manager user guide, and pci.ids for the three).
SWITCHES = {"1ac2": "V100", "1af1": "A100", "22a3": "H100"}


_DRIVER = re.compile(
    r"(cuda-drivers|nvidia-(driver|open|dkms|kernel|headless|utils|compute-utils|firmware|modprobe|persistenced|smi|"
    r"fabric-?manager|imex)|libnvidia-(compute|cfg1?|ml1?|nscq|gpucomp|ptxjitcompiler|common|extra|decode|encode|fbc1?|gl)|"
    r"libnvsdm|libcuda1|firmware-nvidia|kmod-nvidia|linux-modules-nvidia|linux-objects-nvidia|cuda-drivers-fabricmanager)"
    r"([-.:0-9].*)?$"
)


class DriverError(ValueError):
    """The driver cannot be what is requested; the text is fit for the user."""


def is_driver_package(name: str) -> bool:
    """Return whether a package is of the driver or the fabric manager; DCGM, CUDA and the container toolkit are not."""
    return _DRIVER.match(name) is not None


class Generation(t.NamedTuple):
    """GPUs by their PCI device id; ``only`` is the kind of kernel modules that they need, empty where both serve."""

    name: str
    first: int
    last: int
    only: str


# By the names that pci.ids has for the ids. Of two ranges that hold an id the first counts.
GENERATIONS = (
    Generation("Maxwell", 0x1340, 0x15EF, PROPRIETARY),
    Generation("Pascal", 0x15F0, 0x15FF, PROPRIETARY),
    Generation("Maxwell", 0x1600, 0x17FF, PROPRIETARY),
    Generation("Pascal", 0x1B00, 0x1D7F, PROPRIETARY),
    Generation("Volta", 0x1D80, 0x1DFF, PROPRIETARY),
    Generation("Turing", 0x1E00, 0x1FFF, ""),
    Generation("Ampere", 0x2080, 0x20FF, ""),
    Generation("Turing", 0x2180, 0x21FF, ""),
    Generation("Ampere", 0x2200, 0x229F, ""),
    Generation("Grace Hopper", 0x2342, 0x234F, OPEN),
    Generation("Hopper", 0x2300, 0x23FF, ""),
    Generation("Ampere", 0x2400, 0x25FF, ""),
    Generation("Ada Lovelace", 0x2600, 0x28FF, ""),
    Generation("Blackwell", 0x2900, 0x2FFF, OPEN),
    Generation("Blackwell", 0x3100, 0x31FF, OPEN),
)


def generation(device: str) -> Generation | None:
    """Return the generation of a PCI device id such as ``2330``; None for one that is in no range."""
    number = int(device, 16)
    return next((known for known in GENERATIONS if known.first <= number <= known.last), None)


def upstream(version: str) -> str:
    """Return NVIDIA's version in a package version: ``580.95.05`` of ``3:580.95.05-1.el9`` and its like."""
    return re.split(r"[-~+]", version.partition(":")[2] or version)[0]


def branch(version: str) -> int:
    match = re.match(r"(\d{3,4})(?:\.|$)", upstream(version))
    if not match:
        raise DriverError(
            f"driver version {version!r} is no branch such as 580 and no version such as 580.95.05 (quote it in YAML)"
        )
    return int(match.group(1))


def fits(request: str, version: str) -> bool:
    """Return whether a package version is of the requested branch, or is the requested version."""
    have = upstream(version)
    return have == request or have.startswith(f"{request}.") or version == request


def order(version: str) -> tuple[t.Any, ...]:
    """Sort key: digits count as numbers, also where letters are beside them."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"\d+|[^\d.]+", version))


@dataclass(frozen=True)
class Gpu:
    """A GPU on the PCI bus, whether a driver knows it or not."""

    address: str
    device: str

    @property
    def generation(self) -> str:
        known = generation(self.device)
        return known.name if known else ""


@dataclass(frozen=True)
class Installed:
    """A package of the driver; ``held`` by whomever."""

    name: str
    version: str
    held: bool = False


@dataclass(frozen=True)
class GpuUser:
    """A process that has a GPU's device file open, or a step of a Slurm job."""

    pid: int
    program: str


@dataclass(frozen=True)
class DriverState:
    """All that was read of a node. Versions are NVIDIA's (``580.95.05``), empty where there is none."""

    kernel: str = ""
    gpus: tuple[Gpu, ...] = ()
    switches: int = 0
    loaded: str = ""
    loaded_flavour: str = ""
    on_disk: str = ""
    on_disk_flavour: str = ""
    module: str = ""
    module_owner: str = ""
    dkms: tuple[str, ...] = ()
    library: str = ""
    fabric_manager: str = ""
    packages: tuple[Installed, ...] = ()
    images: tuple[str, ...] = ()
    installer: str = ""
    container: str = ""
    nouveau: bool = False
    headers: bool = True
    secure_boot: bool = False
    users: tuple[GpuUser, ...] = ()
    ours: Json = field(default_factory=dict)


@dataclass(frozen=True)
class DriverRequest:
    """What the options ask for. ``take_over`` are kinds of managers whose driver may be replaced."""

    version: str
    flavour: str = AUTO
    fabric_manager: bool = False
    take_over: tuple[str, ...] = ()
    mok_enrolled: bool = False


class Manager(t.NamedTuple):
    """Somebody else who manages the driver; ``kind`` is what ``take_over`` names, unless it can be no part of that."""

    kind: str
    why: str
    way: str = ""
