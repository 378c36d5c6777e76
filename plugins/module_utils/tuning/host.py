# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read and set what the running kernel has, for the module node_tuning. Private.

``root`` stands before every path that is read, so that tests can show another machine.
"""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import Finding
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.files import SYSCTL
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.values import Write, normal

_SYSCTL_FOLDERS = ("etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d")
# Of Docker and Podman; a container without systemd may have nothing else to know it by.
_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
_UNIT_FOLDERS = ("etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")


class ApplyError(Exception):
    """The kernel refused a value; the text is fit for the user."""


def container(root: str = "/") -> str:
    """Return the kind of container this is, empty for a machine with a kernel of its own."""
    told = _text(Path(root, "run/systemd/container"))
    if told:
        return told.strip()
    environment = _text(Path(root, "proc/1/environ")) or ""
    match = re.search(r"(?:^|\0)container=([^\0]+)", environment)
    if match:
        return match.group(1)
    if any(Path(root, name).exists() for name in _CONTAINER_FILES):
        return "by its files"
    if root != "/":
        return ""
    said = run(["systemd-detect-virt", "--container"], 10).out.strip()
    return "" if said in ("", "none") else said


def unit_exists(name: str, root: str = "/") -> bool:
    """Return whether there is a unit file of that name."""
    return any(Path(root, folder, name).exists() for folder in _UNIT_FOLDERS)


def read(paths: t.Iterable[str], root: str = "/") -> dict[str, str]:
    """Return the present values; files that are not there are left out."""
    found = {path: _text(Path(root, path.lstrip("/"))) for path in paths}
    return {path: normal(text) for path, text in found.items() if text is not None}


def nfs_devices(root: str = "/") -> list[str]:
    """Return the read-ahead files of the NFS mounts of this machine."""
    mounts = (_text(Path(root, "proc/self/mountinfo")) or "").splitlines()
    devices = {
        fields[2]
        for fields, rest in ((line.split(), line.rpartition(" - ")[2].split()) for line in mounts)
        if rest and rest[0] in ("nfs", "nfs4")
    }
    return [f"/sys/class/bdi/{device}/read_ahead_kb" for device in sorted(devices)]


def later_sysctl(root: str = "/") -> dict[str, str]:
    """Return the files that sysctl reads after ours, in their order; of one name the first folder's holds."""
    seen: dict[str, Path] = {}
    for folder in _SYSCTL_FOLDERS:
        for path in Path(root, folder).glob("*.conf"):
            seen.setdefault(path.name, path)
    after = [seen[name] for name in sorted(seen) if name > Path(SYSCTL).name]
    files = [*after, Path(root, "etc/sysctl.conf")]
    texts = {f"/{path.relative_to(root)}": _text(path) for path in files}
    return {path: text for path, text in texts.items() if text is not None}


def misnamed(names: t.Mapping[str, str], root: str = "/") -> list[Finding]:
    """Find adapters that are not called what they will be called; under a running job nothing is renamed."""
    findings = []
    folder = Path(root, "sys/class/infiniband")
    for device in sorted(folder.iterdir()) if folder.is_dir() else []:
        domain = Path(os.path.realpath(device / "device")).name.split(":")[0]
        if names.get(domain, device.name) != device.name:
            text = f"is called {names[domain]} from the next boot on"
            findings.append(Finding("warn", device.name, text))
    return findings


def write(writes: t.Iterable[Write]) -> None:
    """Set the values one by one and read them back: the kernel takes some and changes them."""
    for one in writes:
        try:
            Path(one.path).write_text(one.after, encoding="ascii")
        except OSError as exc:
            raise ApplyError(f"Cannot set {one.name} to {one.after} in {one.path}: {exc.strerror or exc}") from exc
        got = read([one.path]).get(one.path)
        if got != one.after:
            raise ApplyError(f"{one.name} was set to {one.after} in {one.path}, but the kernel shows {got}")


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
