# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel settings: what the running kernel has, what it shall have, and what it had before us."""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import ForeignFile, Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.settings import SYSCTL, TuningSettings

# What the running kernel has, what it shall have, and what it had before us. Pure, private.


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


def place(name: str) -> str:
    """Return the file of a sysctl; as sysctl(8), a name whose first separator is a slash is a path already."""
    first = re.search(r"[./]", name)
    swap = str.maketrans("./", "/.")
    return f"/proc/sys/{name.translate(swap) if first and first.group() == '.' else name}"


def normal(text: str) -> str:
    """Read a value as the kernel prints it; of several words the one in brackets holds."""
    chosen = re.search(r"\[([^]]+)\]", text)
    return chosen.group(1) if chosen else " ".join(text.split())


def values(settings: TuningSettings, nfs: t.Sequence[str]) -> list[Value]:
    """Return the values that belong to the settings; ``nfs`` are the files of the NFS mounts that are there now."""
    found = [Value(name, [place(name)], normal(str(value))) for name, value in sorted(settings.sysctl.items())]
    if settings.transparent_hugepages:
        found.append(Value("transparent huge pages", [HUGEPAGES], settings.transparent_hugepages))
    if settings.sunrpc_slots:
        found.append(Value("sunrpc slots", [SLOTS], str(settings.sunrpc_slots)))
    if settings.nfs_readahead_kb:
        found.append(Value(NFS, list(nfs), str(settings.nfs_readahead_kb)))
    return found


def outranked(later: t.Mapping[str, str], wanted: t.Mapping[str, str]) -> tuple[set[str], list[ForeignFile]]:
    """Find settings for which a file that is read after ours says something else: the administrator's word."""
    said: dict[str, tuple[str, str]] = {}
    for path, text in later.items():
        for line in text.splitlines():
            match = re.match(r"\s*-?([^#;=\s]+)\s*=\s*(.*?)\s*$", line)
            if match:
                said[place(match.group(1))] = (path, normal(match.group(2)))
    lost, findings = set(), []
    for name, value in sorted(wanted.items()):
        path, other = said.get(place(name), ("", normal(str(value))))
        if other != normal(str(value)):
            lost.add(name)
            text = f"{path} says {other}, is read after {SYSCTL} and wins; the role's {value} is not set"
            findings.append(ForeignFile("warn", name, text))
    return lost, findings


def plan(wanted: t.Sequence[Value], now: t.Mapping[str, str], record: t.Mapping[str, t.Any]) -> TuningPlan:
    """Decide what to write; ``now`` holds the files that exist, ``record`` what was there before us."""
    writes, noted, findings = [], {}, []
    for value in wanted:
        there = [path for path in value.paths if path in now]
        if value.paths and not there:
            text = "the running kernel does not have it; it is set when the kernel gets it"
            findings.append(ForeignFile("info", value.name, text))
        todo = [Write(value.name, path, now[path], value.wanted) for path in there if now[path] != value.wanted]
        earlier = record.get(value.name)
        writes += todo
        if todo or earlier:
            before = earlier["before"] if earlier else todo[0].before
            noted[value.name] = {"before": before, "set": value.wanted, "paths": list(value.paths)}
    names = {value.name for value in wanted}
    for name, earlier in sorted(record.items()):
        if name not in names:
            writes += restore(name, earlier, now)
    return TuningPlan(writes, noted, findings)


def restore(name: str, earlier: t.Mapping[str, t.Any], now: t.Mapping[str, str]) -> list[Write]:
    """Give a value back; one that somebody changed since is theirs."""
    return [
        Write(name, path, now[path], earlier["before"])
        for path in earlier["paths"]
        if path in now and now[path] == earlier["set"] != earlier["before"]
    ]


# Read and set what the running kernel has, for the module node_tuning.


_SYSCTL_FOLDERS = ("etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d")
# Of Docker and Podman; a container without systemd may have nothing else to know it by.
_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
_UNIT_FOLDERS = ("etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")


class TuningError(Exception):
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


def misnamed(names: t.Mapping[str, str], root: str = "/") -> list[ForeignFile]:
    """Find adapters that are not called what they will be called; under a running job nothing is renamed."""
    findings = []
    folder = Path(root, "sys/class/infiniband")
    for device in sorted(folder.iterdir()) if folder.is_dir() else []:
        domain = Path(os.path.realpath(device / "device")).name.split(":")[0]
        if names.get(domain, device.name) != device.name:
            text = f"is called {names[domain]} from the next boot on"
            findings.append(ForeignFile("warn", device.name, text))
    return findings


def write(writes: t.Iterable[Write]) -> None:
    """Set the values one by one and read them back: the kernel takes some and changes them."""
    for one in writes:
        try:
            Path(one.path).write_text(one.after, encoding="ascii")
        except OSError as exc:
            raise TuningError(f"Cannot set {one.name} to {one.after} in {one.path}: {exc.strerror or exc}") from exc
        got = read([one.path]).get(one.path)
        if got != one.after:
            raise TuningError(f"{one.name} was set to {one.after} in {one.path}, but the kernel shows {got}")


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
