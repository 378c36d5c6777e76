# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What unprivileged containers need of a host: namespaces, AppArmor's leave, file capabilities. Private."""

from __future__ import annotations

import contextlib
import os
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_conf as conf

SYSCTL = "/etc/sysctl.d/60-hpcai-enroot.conf"
PROFILE = "/etc/apparmor.d/enroot"
_CARRIED_PROFILE = "/usr/share/enroot/apparmor.profile"
_RESTRICTED = "kernel/apparmor_restrict_unprivileged_userns"
_LOADED = "/sys/kernel/security/apparmor/profiles"
_KEYS = ("kernel.unprivileged_userns_clone", "user.max_user_namespaces", "user.max_mnt_namespaces")
# As pkg/deb/PACKAGE+caps.postinst in enroot's source; a copy of a system made by tar may have lost them.
CAPABILITIES = {
    "/usr/bin/enroot-mksquashovlfs": "cap_sys_admin=ep",
    "/usr/bin/enroot-aufs2ovlfs": "cap_sys_admin,cap_mknod=ep",
}
_TIMEOUT = 30.0
_PROOF = ["runuser", "-u", "nobody", "--", "/usr/bin/enroot-nsenter", "--user", "--mount", "/bin/true"]


class HostError(ValueError):
    """Containers cannot run on this host; the text is fit for the user."""


def sysctls(root: str = "/") -> dict[str, str]:
    """Read those settings that this kernel has."""
    found = {}
    for key in _KEYS:
        with contextlib.suppress(OSError):
            found[key] = Path(root, "proc/sys", key.replace(".", "/")).read_text().strip()
    return found


def kernel_file(root: str = "/") -> str | None:
    """Return what the file of ours in sysctl.d has to hold."""
    place = Path(root, SYSCTL.lstrip("/"))
    noted = place.read_text() if place.is_file() else ""
    threads = int(Path(root, "proc/sys/kernel/threads-max").read_text())
    return conf.sysctls(sysctls(root), noted, threads)


def closed(text: str | None, root: str = "/") -> dict[str, str]:
    """Return the settings that are not as the file says."""
    wanted = dict(line.split(" = ", 1) for line in (text or "").splitlines() if " = " in line)
    now = sysctls(root)
    return {key: value for key, value in wanted.items() if now.get(key) != value}


def allow(settings: t.Mapping[str, str], root: str = "/") -> None:
    for key, value in settings.items():
        Path(root, "proc/sys", key.replace(".", "/")).write_text(value)


def apparmor_file(root: str = "/") -> str | None:
    """Return the profile that lets enroot make namespaces; None where nothing forbids it, or another's is there."""
    place, carried = (Path(root, path.lstrip("/")) for path in (PROFILE, _CARRIED_PROFILE))
    if place.is_file() and owned.MARK not in place.read_text(errors="replace"):
        return None
    restricted = Path(root, "proc/sys", _RESTRICTED)
    if not restricted.is_file() or not carried.is_file():
        return None
    return conf.HEAD + carried.read_text()


def profile_missing(root: str = "/") -> bool:
    """Tell whether AppArmor forbids namespaces and does not know the profile yet."""
    restricted, loaded = Path(root, "proc/sys", _RESTRICTED), Path(root, _LOADED.lstrip("/"))
    if (
        not restricted.is_file()
        or restricted.read_text().strip() != "1"
        or not Path(root, PROFILE.lstrip("/")).exists()
    ):
        return False
    return not loaded.is_file() or "/usr/bin/enroot-nsenter" not in loaded.read_text()


def load_profile() -> None:
    outcome = run(["apparmor_parser", "--replace", "--write-cache", PROFILE], _TIMEOUT)
    if outcome.rc != 0:
        raise HostError(f"AppArmor does not take {PROFILE}: {outcome.problem}")


def capabilities_lost(programs: t.Mapping[str, str]) -> dict[str, str]:
    """Return the programs that are there without the capabilities they need."""
    lost = {}
    for path, wanted in programs.items():
        said = run(["getcap", path], _TIMEOUT)
        if os.access(path, os.X_OK) and set(said.out.split()[1:2]) != {wanted}:
            lost[path] = wanted
    return lost


def give(lost: t.Mapping[str, str]) -> None:
    for path, wanted in lost.items():
        outcome = run(["setcap", wanted, path], _TIMEOUT)
        if outcome.rc != 0:
            raise HostError(
                f"{path} cannot be given {wanted}, without which users cannot import images: {outcome.problem}"
            )


def prove() -> None:
    """Raise unless an ordinary user can make a namespace."""
    outcome = run(_PROOF, _TIMEOUT)
    if outcome.rc != 0:
        raise HostError(
            f"the user nobody cannot make a user namespace here ({' '.join(_PROOF)}: {outcome.problem}). Look at "
            f"{', '.join(f'{key} = {value}' for key, value in sysctls().items())}, at AppArmor "
            f"(/proc/sys/{_RESTRICTED}) and at what the container or machine around this host allows"
        )
