# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who manages the driver, which kernel modules the GPUs need, which packages that takes, and why to reboot. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.driver.model import (
    AUTO,
    FIRST_OPEN_BRANCH,
    LAST_OLD_BRANCH,
    LAST_PROPRIETARY_BRANCH,
    OPEN,
    PROPRIETARY,
    DriverError,
    DriverRequest,
    DriverState,
    Installed,
    Json,
    Manager,
    branch,
    fits,
    generation,
    is_driver_package,
    order,
    upstream,
)

# What each part of the driver can be called: of the names of one list the first that is offered counts.
Names = t.Sequence[t.Sequence[str]]
Offers = t.Mapping[str, t.Sequence[str]]
TAKEN_OVER = ("azure_hpc", "dgx_os", "packages", "held")
_IMAGE_WORDS = {
    "azure_hpc": "/opt/azurehpc is there: it is an Azure HPC image, whose driver and kernel fit each other",
    "dgx_os": "/etc/dgx-release is there: DGX OS brings and updates the driver",
}
_MOST = 5


def managers(state: DriverState, request: DriverRequest) -> list[Manager]:
    """Return everybody else who manages the driver and whose work ``take_over`` does not allow to replace."""
    others = [Manager(kind, _IMAGE_WORDS[kind]) for kind in state.images]
    if state.container:
        why = f"{state.container} is there: the driver runs in a container, as the GPU operator of Kubernetes has it"
        others.append(Manager("container", why, "take the operator's driver away from the node first"))
    if state.installer:
        why = f"{state.installer} is there and no package's: the driver was installed by NVIDIA's .run file"
        others.append(Manager("runfile", why, "run 'nvidia-uninstall' and reboot first"))
    elif state.module and not state.module_owner:
        version = state.on_disk or "no version"
        why = f"{state.module} ({version}) is no package's, and DKMS did not build it of a package's source"
        others.append(Manager("unpackaged", why, "remove it by the way that it came first"))
    others += _of_packages(state, request)
    return [manager for manager in others if manager.kind not in request.take_over or manager.kind not in TAKEN_OVER]


def _of_packages(state: DriverState, request: DriverRequest) -> list[Manager]:
    """Holds that are not ours, and packages of another version that we did not install."""
    our_holds = state.ours.get("held", [])
    held = [
        f"{package.name} {package.version}"
        for package in state.packages
        if package.held and package.name not in our_holds
    ]
    others = [
        f"{package.name} {package.version}"
        for package in state.packages
        if _is_kernel_part(package.name)
        and not fits(request.version, package.version)
        and not _is_ours(package, state.ours)
    ]
    owners = []
    if held:
        owners.append(Manager("held", f"an administrator holds {_some(held)}"))
    if others:
        owners.append(Manager("packages", f"{_some(others)} is installed, and not by this role"))
    return owners


def _is_ours(package: Installed, ours: Json) -> bool:
    """Whether our last run installed this very version, or met it when it was killed; others have upgraded it since."""
    noted, before = ours.get("packages", {}), ours.get("before", {})
    known = {upstream(version) for version in noted.values()}
    return upstream(package.version) in known or (bool(noted) and before.get(package.name) == package.version)


def _is_kernel_part(name: str) -> bool:
    return any(
        word in name for word in ("dkms", "kmod-nvidia", "linux-modules-nvidia", "nvidia-driver", "cuda-drivers")
    )


def _some(words: t.Sequence[str]) -> str:
    more = f" and {len(words) - _MOST} more" if len(words) > _MOST else ""
    return f"{', '.join(words[:_MOST])}{more}"


def refusals(state: DriverState, request: DriverRequest) -> list[str]:
    """Return why the driver of this node is not to be touched, as sentences."""
    reasons = []
    for manager in managers(state, request):
        way = (
            manager.way
            or f"If its driver is to be replaced all the same, add {manager.kind} to nvidia_driver_take_over"
        )
        reasons.append(f"{manager.why}. {way[0].upper()}{way[1:]}")
    if state.secure_boot and not state.loaded and not request.mok_enrolled:
        reasons.append(
            "Secure Boot is on: the kernel loads no module that DKMS built until its key is enrolled at the console."
            " Enrol it (mokutil --import) and set nvidia_driver_mok_enrolled, or switch Secure Boot off"
        )
    return reasons


def flavour(state: DriverState, request: DriverRequest) -> str:
    """Return the kind of kernel modules that all GPUs of the node can have in the requested branch, or refuse."""
    number = branch(request.version)
    needs: dict[str, list[str]] = {PROPRIETARY: [], OPEN: []}
    unknown = []
    for gpu in state.gpus:
        known = generation(gpu.device)
        if known is None:
            unknown.append(gpu.device)
        elif known.only:
            needs[known.only].append(known.name)
    if needs[OPEN] and needs[PROPRIETARY]:
        raise DriverError(
            f"{needs[PROPRIETARY][0]} needs the proprietary modules and {needs[OPEN][0]} the open ones: one driver"
            f" cannot serve both"
        )
    if unknown and request.flavour == AUTO:
        raise DriverError(
            f"the generation of the GPU 10de:{unknown[0]} is not known here: set nvidia_driver_flavour to open or"
            f" proprietary"
        )
    needed = next((kind for kind in (OPEN, PROPRIETARY) if needs[kind]), "")
    kind = (
        request.flavour if request.flavour != AUTO else needed or (OPEN if number >= FIRST_OPEN_BRANCH else PROPRIETARY)
    )
    if needed and kind != needed:
        raise DriverError(f"{needs[needed][0]} GPUs need the {needed} kernel modules, not the {kind} ones")
    if kind == OPEN and number < FIRST_OPEN_BRANCH:
        raise DriverError(f"branch {number} has no open kernel modules: they begin with {FIRST_OPEN_BRANCH}")
    if needed == PROPRIETARY and number > LAST_OLD_BRANCH:
        raise DriverError(
            f"{LAST_OLD_BRANCH} is the last branch for {needs[needed][0]} GPUs, and {request.version} is newer"
        )
    if kind == PROPRIETARY and number > LAST_PROPRIETARY_BRANCH:
        raise DriverError(f"branch {number} has no proprietary kernel modules: NVIDIA removed them with 620")
    return kind


def names(table: Names, version: str) -> list[list[str]]:
    """Write the branch into names such as ``nvidia-utils-{branch}``."""
    return [[name.replace("{branch}", str(branch(version))) for name in alternatives] for alternatives in table]


class PackagePlan(t.NamedTuple):
    """One version of NVIDIA's for all; ``install`` are package versions by name, ``changes`` whether one moves."""

    version: str
    install: dict[str, str]
    changes: bool

    def words(self, mark: str = "=") -> list[str]:
        return [f"{name}{mark}{version}" for name, version in sorted(self.install.items())]


def choose(request: str, table: Names, offers: Offers, have: t.Mapping[str, str], optional: Names = ()) -> PackagePlan:
    """Choose a version in which every part is offered or installed: what is installed and fits stays, else the highest.

    A version is NVIDIA's, not the package's: the fabric manager's package can have another revision than the driver's.
    Parts that are ``optional`` come along where they are offered in that version.
    """
    parts, extra = names(table, request), names(optional, request)
    known = {name for alternatives in [*parts, *extra] for name in alternatives}
    everything = {name: [*([have[name]] if name in have else []), *offers.get(name, [])] for name in known}
    needed = {name for alternatives in parts for name in alternatives}
    candidates = {upstream(version) for name in needed for version in everything[name] if fits(request, version)}
    installed = {upstream(have[name]) for name in needed if name in have and fits(request, have[name])}
    for candidate in [
        *sorted(installed, key=order, reverse=True),
        *sorted(candidates - installed, key=order, reverse=True),
    ]:
        taken = _take(parts, everything, request, candidate)
        if taken is not None:
            for part in extra:
                taken.update(_take([part], everything, request, candidate) or {})
            changes = any(have.get(name) != version for name, version in taken.items())
            return PackagePlan(candidate, taken, changes)
    raise DriverError(_nothing(request, parts, everything))


def _take(parts: Names, everything: Offers, request: str, candidate: str) -> dict[str, str] | None:
    """Return the packages of one version; None where a part is not to be had in it."""
    taken: dict[str, str] = {}
    for alternatives in parts:
        offered = (
            (name, version)
            for name in alternatives
            for version in everything[name]
            if upstream(version) == candidate and fits(request, version)
        )
        first = next(offered, None)
        if first is None:
            return None
        taken[first[0]] = first[1]
    return taken


def _nothing(request: str, parts: Names, everything: Offers) -> str:
    rows = []
    for alternatives in parts:
        listed = sorted({upstream(v) for name in alternatives for v in everything[name]}, key=order, reverse=True)
        shown = _some(listed) if listed else "nothing"
        rows.append(f"{' or '.join(alternatives)}: {shown}")
    return (
        f"no version of the driver that fits {request} has all its parts in the repositories of this host. They offer"
        f" {'; '.join(rows)}"
    )


def foreign_removals(removed: t.Iterable[str]) -> list[str]:
    """Return packages that a plan would remove and that are not the driver's."""
    plain = (name.partition(":")[0] for name in removed)
    return [name for name in plain if not is_driver_package(name) and not name.startswith(("libnvidia-", "nvidia-"))]


def in_use(state: DriverState) -> str:
    """Say who uses the GPUs; empty when nobody does."""
    if not state.users:
        return ""
    shown = _some([f"{user.program} (pid {user.pid})" for user in state.users])
    return f"the GPUs are in use by {shown}: drain the node and wait until its jobs have ended"


def reboot_reasons(state: DriverState) -> list[str]:
    """Return why only a reboot brings the driver that is on the disk into use."""
    if not state.on_disk:
        return []
    reasons = []
    if state.loaded and state.loaded != state.on_disk:
        reasons.append(f"the kernel has driver {state.loaded} loaded, and {state.on_disk} is installed")
    elif state.loaded and state.loaded_flavour != state.on_disk_flavour:
        reasons.append(
            f"the kernel has the {state.loaded_flavour} modules loaded, and installed are the"
            f" {state.on_disk_flavour} ones"
        )
    if not state.loaded and state.nouveau:
        reasons.append("nouveau drives the GPUs, and leaves them with a reboot only")
    return reasons


def faults(state: DriverState, request: DriverRequest, fabric_manager: bool) -> list[str]:
    """Return what disagrees, for a node that was rebooted after its driver changed."""
    reasons = []
    if not state.loaded:
        reasons.append("no NVIDIA driver is loaded")
    elif not fits(request.version, state.loaded):
        reasons.append(f"driver {state.loaded} is loaded, not {request.version}")
    if state.loaded and state.library and state.library != state.loaded:
        reasons.append(f"libnvidia-ml is of driver {state.library}, and {state.loaded} is loaded")
    if fabric_manager and not state.fabric_manager:
        reasons.append("there is no fabric manager, and the GPUs are on NVSwitches")
    elif fabric_manager and state.loaded and state.fabric_manager != state.loaded:
        reasons.append(
            f"the fabric manager is {state.fabric_manager}, and driver {state.loaded} is loaded: it refuses to start"
        )
    return [*reasons, *reboot_reasons(state)]
