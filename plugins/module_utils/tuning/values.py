# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel settings: the running kernel's values, the requested ones, and those before the role changed them."""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import ForeignFile, Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.settings import SYSCTL, TuningSettings

# From current and requested values to writes. Pure.


HUGEPAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
SLOTS = "/sys/module/sunrpc/parameters/tcp_max_slot_table_entries"
NFS = "NFS read-ahead (KiB)"


class Value(t.NamedTuple):
    """A setting of the running kernel and the files in /proc and /sys that hold it."""

    name: str
    paths: t.Sequence[str]
    wanted: str


class Write(t.NamedTuple):
    name: str
    path: str
    before: str
    after: str


class TuningPlan(t.NamedTuple):
    """``record`` is what has to be noted before the writes."""

    writes: list[Write]
    record: Json
    findings: list[ForeignFile]


def sysctl_file(name: str) -> str:
    """Return the file of a sysctl; as sysctl(8), a name whose first separator is a slash is a path already."""
    first = re.search(r"[./]", name)
    swap = str.maketrans("./", "/.")
    return f"/proc/sys/{name.translate(swap) if first and first.group() == '.' else name}"


def normal(text: str) -> str:
    """Return a value as the kernel prints it; of several words the one in brackets is in effect."""
    chosen = re.search(r"\[([^]]+)\]", text)
    return chosen.group(1) if chosen else " ".join(text.split())


def values(settings: TuningSettings, nfs: t.Sequence[str]) -> list[Value]:
    """Return the values that belong to the settings; ``nfs`` are the files of the present NFS mounts."""
    values = [Value(name, [sysctl_file(name)], normal(str(value))) for name, value in sorted(settings.sysctl.items())]
    if settings.transparent_hugepages:
        values.append(Value("transparent huge pages", [HUGEPAGES], settings.transparent_hugepages))
    if settings.sunrpc_slots:
        values.append(Value("sunrpc slots", [SLOTS], str(settings.sunrpc_slots)))
    if settings.nfs_readahead_kb:
        values.append(Value(NFS, list(nfs), str(settings.nfs_readahead_kb)))
    return values


def outranked(later: t.Mapping[str, str], sysctl: t.Mapping[str, str]) -> tuple[set[str], list[ForeignFile]]:
    """Return settings to which a file that is read after ours gives another value, and findings about them."""
    settings_after: dict[str, tuple[str, str]] = {}
    for path, text in later.items():
        for line in text.splitlines():
            match = re.match(r"\s*-?([^#;=\s]+)\s*=\s*(.*?)\s*$", line)
            if match:
                settings_after[sysctl_file(match.group(1))] = (path, normal(match.group(2)))
    lost, findings = set(), []
    for name, value in sorted(sysctl.items()):
        path, value_after = settings_after.get(sysctl_file(name), ("", normal(str(value))))
        if value_after != normal(str(value)):
            lost.add(name)
            text = f"{path} says {value_after}, is read after {SYSCTL} and wins; the role's {value} is not set"
            findings.append(ForeignFile("warn", name, text))
    return lost, findings


def plan(values: t.Sequence[Value], current: t.Mapping[str, str], record: t.Mapping[str, t.Any]) -> TuningPlan:
    """Return the writes; ``current`` has the values of files that exist, ``record`` those before the role."""
    writes, noted, findings = [], {}, []
    for value in values:
        present = [path for path in value.paths if path in current]
        if value.paths and not present:
            text = "the running kernel does not have it; it is set when the kernel gets it"
            findings.append(ForeignFile("info", value.name, text))
        needed = [
            Write(value.name, path, current[path], value.wanted) for path in present if current[path] != value.wanted
        ]
        earlier = record.get(value.name)
        writes += needed
        if needed or earlier:
            before = earlier["before"] if earlier else needed[0].before
            noted[value.name] = {"before": before, "set": value.wanted, "paths": list(value.paths)}
    names = {value.name for value in values}
    for name, earlier in sorted(record.items()):
        if name not in names:
            writes += restore(name, earlier, current)
    return TuningPlan(writes, noted, findings)


def restore(name: str, earlier: t.Mapping[str, t.Any], current: t.Mapping[str, str]) -> list[Write]:
    """Restore the value from before the role; one that somebody changed since then stays."""
    return [
        Write(name, path, current[path], earlier["before"])
        for path in earlier["paths"]
        if path in current and current[path] == earlier["set"] != earlier["before"]
    ]


# Read and set the running kernel's values.


_SYSCTL_FOLDERS = ("etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d")
# Of Docker and Podman; a container without systemd may have no other sign.
_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
_UNIT_FOLDERS = ("etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")


class TuningError(Exception):
    """The kernel refused a value; the text is fit for the user."""


def container(root: str = "/") -> str:
    """Return the kind of container, empty for a machine with a kernel of its own."""
    kind = _text(Path(root, "run/systemd/container"))
    if kind:
        return kind.strip()
    environment = _text(Path(root, "proc/1/environ")) or ""
    match = re.search(r"(?:^|\0)container=([^\0]+)", environment)
    if match:
        return match.group(1)
    if any(Path(root, name).exists() for name in _CONTAINER_FILES):
        return "by its files"
    if root != "/":
        return ""
    virtualization = run(["systemd-detect-virt", "--container"], 10).out.strip()
    return "" if virtualization in ("", "none") else virtualization


def unit_exists(name: str, root: str = "/") -> bool:
    """Return whether there is a unit file of that name."""
    return any(Path(root, folder, name).exists() for folder in _UNIT_FOLDERS)


def read(paths: t.Iterable[str], root: str = "/") -> dict[str, str]:
    """Return the current values; files that do not exist are left out."""
    texts = {path: _text(Path(root, path.lstrip("/"))) for path in paths}
    return {path: normal(text) for path, text in texts.items() if text is not None}


def nfs_devices(root: str = "/") -> list[str]:
    """Return the read-ahead files of the NFS mounts of this machine."""
    mounts = (_text(Path(root, "proc/self/mountinfo")) or "").splitlines()
    devices = {
        fields[2]
        for fields, filesystem in ((line.split(), line.rpartition(" - ")[2].split()) for line in mounts)
        if filesystem and filesystem[0] in ("nfs", "nfs4")
    }
    return [f"/sys/class/bdi/{device}/read_ahead_kb" for device in sorted(devices)]


def later_sysctl(root: str = "/") -> dict[str, str]:
    """Return the files that sysctl reads after ours, in their order; of files with one name the first folder's."""
    path_by_name: dict[str, Path] = {}
    for folder in _SYSCTL_FOLDERS:
        for path in Path(root, folder).glob("*.conf"):
            path_by_name.setdefault(path.name, path)
    after = [path_by_name[name] for name in sorted(path_by_name) if name > Path(SYSCTL).name]
    files = [*after, Path(root, "etc/sysctl.conf")]
    texts = {f"/{path.relative_to(root)}": _text(path) for path in files}
    return {path: text for path, text in texts.items() if text is not None}


def misnamed(names: t.Mapping[str, str], root: str = "/") -> list[ForeignFile]:
    """Return findings about adapters whose names change at the next boot; none is renamed under running jobs."""
    findings = []
    folder = Path(root, "sys/class/infiniband")
    for device in sorted(folder.iterdir()) if folder.is_dir() else []:
        domain = Path(os.path.realpath(device / "device")).name.split(":")[0]
        if names.get(domain, device.name) != device.name:
            text = f"is called {names[domain]} from the next boot on"
            findings.append(ForeignFile("warn", device.name, text))
    return findings


def write(writes: t.Iterable[Write]) -> None:
    """Set the values one by one and read them back, since the kernel may accept a value and change it."""
    for request in writes:
        try:
            Path(request.path).write_text(request.after, encoding="ascii")
        except OSError as exc:
            raise TuningError(
                f"Cannot set {request.name} to {request.after} in {request.path}: {exc.strerror or exc}"
            ) from exc
        reading = read([request.path]).get(request.path)
        if reading != request.after:
            raise TuningError(
                f"{request.name} was set to {request.after} in {request.path}, but the kernel shows {reading}"
            )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
