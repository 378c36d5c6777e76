# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module nccl_config: a block of ours at the end of ``/etc/nccl.conf``, to which several people write."""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files as owned
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import (
    MARK,
    FileChange,
    FileModule,
    ForeignFile,
    Json,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.nccl.topology import NcclTopologyError, generate
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.tuning.values import unit_exists

# ``/etc/nccl.conf``, to which several people write: a block of ours at its end. Pure, private.


PATH = "/etc/nccl.conf"
# NCCL ends for a graph file that it cannot open (src/graph/xml.cc), and goes its own way without a topology file.
FILES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")
_MADE = " (file, too)"
_JOINED = " (newline, too)"
_BEGIN = f"# BEGIN {MARK}, role node_tuning"
_END = "# END hpcai.gpu_cluster"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST = 1023


class NcclConfError(ValueError):
    """A variable cannot stand in NCCL's file; the text is fit for the user."""


def others(text: str | None) -> str | None:
    """Return the file without our block and what was added with it; nothing when the file itself was."""
    if text is None:
        return None
    match = re.search(rf"^{re.escape(_BEGIN)}(.*)\n(?s:.*?)^{re.escape(_END)}\n?", text, re.MULTILINE)
    if not match:
        return text
    before, after, notes = text[: match.start()], text[match.end() :], match.group(1)
    if _JOINED in notes and not after:
        before = before[:-1]
    rest = before + after
    return None if _MADE in notes and not rest else rest


def decode(content: bytes) -> str:
    """Return the file's text; its line ends are somebody's and stay."""
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        raise NcclConfError(f"{PATH} is no text in UTF-8: {exc}. Correct it or move it away") from exc


def entries(text: str) -> list[tuple[str, str]]:
    """Return the lines as NCCL reads them."""
    lines = [line[:-1] if line.endswith("\r") else line for line in text.split("\n")]
    pairs = [line.partition("=") for line in lines if not line.startswith("#")]
    return [(name, value) for name, equals, value in pairs if equals]


def effective(text: str) -> dict[str, str]:
    """Return the value that each name gets from the file."""
    found: dict[str, str] = {}
    for name, value in entries(text):
        found.setdefault(name, value)
    return found


def validate(variables: t.Mapping[str, str]) -> None:
    """Refuse what NCCL would read as something else."""
    for name, value in variables.items():
        if not _NAME.fullmatch(name):
            raise NcclConfError(f"{name!r} is no name of a variable: letters, digits and '_' are")
        if "\n" in value or len(value) > _LONGEST:
            raise NcclConfError(f"{name} has {len(value)} characters or several lines; NCCL reads one of {_LONGEST}")


def merge(
    text: str | None,
    variables: t.Mapping[str, str],
    same: t.Callable[[str, str], bool] = str.__eq__,
) -> tuple[str | None, dict[str, str], list[ForeignFile]]:
    """Return the file with our variables, and those of them that it needed; what others say in it stays and wins."""
    validate(variables)
    rest = others(text)
    theirs = effective(rest or "")
    findings = _remarks(rest or "")
    ours = {}
    for name, value in sorted(variables.items()):
        if name not in theirs:
            ours[name] = value
        elif theirs[name] != value and not (name in FILES and same(theirs[name], value)):
            kept = f"{PATH} says {theirs[name]}, which stays; the role's {value} is not set"
            findings.append(ForeignFile("warn", name, kept))
    if not ours:
        return rest, ours, findings
    notes = _MADE if rest is None else _JOINED if rest and not rest.endswith("\n") else ""
    room = "\n" if notes == _JOINED else ""
    return f"{rest or ''}{room}{block(ours, notes)}", ours, findings


def block(ours: t.Mapping[str, str], notes: str = "") -> str:
    """Return our lines between their marks; the notes tell what has to go with them."""
    lines = "".join(f"{name}={value}\n" for name, value in sorted(ours.items()))
    return f"{_BEGIN}{notes}\n{lines}{_END}\n"


def _remarks(text: str) -> list[ForeignFile]:
    """Tell of lines that do something else than they seem to."""
    findings: list[ForeignFile] = []
    seen: dict[str, str] = {}
    for name, value in entries(text):
        if not _NAME.fullmatch(name):
            findings.append(
                ForeignFile("warn", PATH, f"NCCL takes {name!r} for the name of a variable, which nothing reads")
            )
        elif seen.setdefault(name, value) != value:
            findings.append(
                ForeignFile("warn", name, f"stands twice in {PATH}; the first, {seen[name]}, is what NCCL takes")
            )
    return findings


def enroot_mounts(paths: t.Sequence[str]) -> str:
    """Lines of an fstab with which enroot shows files of the host in containers; one that is missing is skipped."""
    options = "x-create=file,bind,ro,nosuid,nodev,noexec,nofail,silent"
    return "".join(f"{path} {path} none {options}\n" for path in sorted(set(paths)))


def dropin(copy: str) -> str:
    """For the service of Azure's images that writes the file anew at every boot: our lines come back behind its own."""
    return "".join(
        [
            "[Service]\n",
            f"ExecStartPost=-/bin/sed -i '/^{_BEGIN}/,/^{_END}/d' {PATH}\n",
            f"ExecStartPost=-/bin/sh -c 'cat {copy} >>{PATH}'\n",
        ]
    )


# What the module nccl_config does with its options.


MOUNTS = "/etc/enroot/mounts.d/60-hpcai-nccl.fstab"
# Azure's HPC images: a script of theirs writes /etc/nccl.conf at every boot.
IMAGE_UNIT = "sku-customizations.service"
COPY = "/etc/hpcai/nccl.conf"
DROPIN = f"/etc/systemd/system/{IMAGE_UNIT}.d/hpcai-nccl-conf.conf"
_HEAD = f"# {MARK}, role node_tuning. Changes made here are lost.\n"
_LINK = ForeignFile("warn", PATH, "is a link and stays as it is. Make it a file to have the role's lines")
Text = t.Dict[str, t.Union[str, None]]


class TopologyOptions(t.NamedTuple):
    """The file that jobs shall use, empty if there is none, and what to write there, if it is ours."""

    path: str
    content: str | None
    findings: list[ForeignFile]


def topology(path: str | None, profile: t.Mapping[str, t.Any]) -> TopologyOptions:
    """Use the file that is there; make it where there is none or only an older one of ours."""
    if not path:
        return TopologyOptions("", None, [])
    place = Path(path)
    if place.exists() and MARK not in place.read_text(encoding="utf-8", errors="replace"):
        return TopologyOptions(path, None, [])
    try:
        return TopologyOptions(path, generate(profile), [])
    except NcclTopologyError as exc:
        text = f"is not on this host and cannot be made ({exc}); NCCL looks for itself"
        return TopologyOptions("", None, [ForeignFile("warn", path, text)])


def usable(variables: t.Mapping[str, t.Any], given: TopologyOptions) -> tuple[dict[str, str], list[ForeignFile]]:
    """Leave out what is null, and files that are not there: NCCL would end for them."""
    every = {**({"NCCL_TOPO_FILE": given.path} if given.path else {}), **variables}
    wanted = {name: str(value) for name, value in every.items() if value is not None}
    findings = []
    for name in FILES:
        path = wanted.get(name, "")
        if path and path != given.path and not Path(path).is_file():
            findings.append(
                ForeignFile("warn", name, f"{wanted.pop(name)} is not on this host; the variable is left out")
            )
    return wanted, findings


def same_file(one: str, other: str) -> bool:
    """Azure's nccl.conf names a link to the file that the profile names."""
    return os.path.realpath(one) == os.path.realpath(other)


def wanted_files(
    params: t.Mapping[str, t.Any], given: TopologyOptions, text: str | None, ours: t.Mapping[str, str]
) -> Text:
    """Return the files that are wholly ours."""
    found = effective(text or "")
    shown = [path for path in (given.path, *(found.get(name) for name in FILES)) if path]
    shown += [PATH] if text else []
    mounts = _HEAD + enroot_mounts(shown) if params["containers"] and params["state"] == "present" and shown else None
    again = bool(ours) and unit_exists(IMAGE_UNIT)
    files: Text = {
        MOUNTS: mounts,
        COPY: block(ours) if again else None,
        DROPIN: _HEAD + dropin(COPY) if again else None,
    }
    return {**files, **({given.path: given.content} if given.content else {})}


def perform(module: FileModule, params: t.Mapping[str, t.Any]) -> Json:
    """Return the result of the module."""
    present = params["state"] == "present"
    record = owned.load(params["record"])
    given = topology(params["topology_file"] if present else None, params["machine"])
    variables, findings = usable(params["variables"] if present else {}, given)
    place = Path(PATH)
    content = place.read_bytes() if place.is_file() else None
    before = None if content is None else decode(content)
    after, ours, remarks = merge(before, variables, same_file)
    if after != before and place.is_symlink():
        remarks, after, ours = [*remarks, _LINK], before, {}
    files = wanted_files(params, given, after, ours)
    gone: Text = {path: None for path in record.get("files", []) if path not in files}
    changes, others = owned.plan({**files, **gone})
    if after != before:
        changes.append(FileChange(PATH, content, after))
    record["files"] = [given.path] if given.content else []
    if not module.check_mode:
        _apply(module, changes, record, params["record"])
    every = given.findings + findings + (remarks if present else []) + others
    return {
        "changed": bool(changes),
        "findings": owned.told(every),
        "files": [one.path for one in changes],
        "topology_file": given.path or None,
        "variables": effective(after or ""),
        "diff": owned.differences(changes),
    }


def _apply(module: FileModule, changes: t.Sequence[FileChange], record: Json, path: str) -> None:
    owned.note_directories(changes, record)
    owned.save(path, record)
    place = Path(PATH)
    mode = f"{place.stat().st_mode & 0o777:04o}" if place.exists() else "0644"
    owned.apply(module, changes, record, {PATH: mode})
    if any(one.path == DROPIN for one in changes):
        run(["systemctl", "daemon-reload"], 120)
    owned.save(path, record)
