# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``/etc/nccl.conf``, to which several people write: a block of ours at its end. Pure, private.

NCCL (2.30, src/misc/param.cc, setEnvFile) puts every line ``NAME=value`` into the environment unless NAME is there
already. So the job's environment wins over files, the user's file (``NCCL_CONF_FILE`` or ``~/.nccl.conf``) over this
one, and of two lines the first. Nothing is trimmed: a blank before the equals sign belongs to the name.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import MARK, Finding

PATH = "/etc/nccl.conf"
# NCCL ends for a graph file that it cannot open (src/graph/xml.cc), and goes its own way without a topology file.
FILES = ("NCCL_TOPO_FILE", "NCCL_GRAPH_FILE")
_MADE = " (file, too)"
_JOINED = " (newline, too)"
_BEGIN = f"# BEGIN {MARK}, role node_tuning"
_END = "# END hpcai.gpu_cluster"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST = 1023


class NcclError(ValueError):
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
        raise NcclError(f"{PATH} is no text in UTF-8: {exc}. Correct it or move it away") from exc


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
            raise NcclError(f"{name!r} is no name of a variable: letters, digits and '_' are")
        if "\n" in value or len(value) > _LONGEST:
            raise NcclError(f"{name} has {len(value)} characters or several lines; NCCL reads one of {_LONGEST}")


def merge(
    text: str | None,
    variables: t.Mapping[str, str],
    same: t.Callable[[str, str], bool] = str.__eq__,
) -> tuple[str | None, dict[str, str], list[Finding]]:
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
            findings.append(Finding("warn", name, kept))
    if not ours:
        return rest, ours, findings
    notes = _MADE if rest is None else _JOINED if rest and not rest.endswith("\n") else ""
    room = "\n" if notes == _JOINED else ""
    return f"{rest or ''}{room}{block(ours, notes)}", ours, findings


def block(ours: t.Mapping[str, str], notes: str = "") -> str:
    """Return our lines between their marks; the notes tell what has to go with them."""
    lines = "".join(f"{name}={value}\n" for name, value in sorted(ours.items()))
    return f"{_BEGIN}{notes}\n{lines}{_END}\n"


def _remarks(text: str) -> list[Finding]:
    """Tell of lines that do something else than they seem to."""
    findings: list[Finding] = []
    seen: dict[str, str] = {}
    for name, value in entries(text):
        if not _NAME.fullmatch(name):
            findings.append(
                Finding("warn", PATH, f"NCCL takes {name!r} for the name of a variable, which nothing reads")
            )
        elif seen.setdefault(name, value) != value:
            findings.append(
                Finding("warn", name, f"stands twice in {PATH}; the first, {seen[name]}, is what NCCL takes")
            )
    return findings


def mounts(paths: t.Sequence[str]) -> str:
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
