# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Passwords for registries in users' own files, read and written with no more than the user's own rights. Private.

A home may be on a file system that lets root do nothing, and what is in it is the user's to arrange.
"""

from __future__ import annotations

import pwd
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run

FILE = ".config/enroot/.credentials"
_TIMEOUT = 60.0
_READ = 'if [ -e "$1" ]; then stat -c %a "$1" && cat "$1"; else echo none; fi'
# Beside the old one and then over it: a reader sees the one or the other, and both are the user's alone.
_WRITE = 'umask 077; mkdir -p "${1%/*}" && new=$(mktemp "$1.XXXXXX") && cat > "$new" && mv -f "$new" "$1"'
_LINE = re.compile(r"\s*machine\s+(\S+)\s+login\s+(\S+)\s+password\s+\S.*")


class CredentialsError(ValueError):
    """Credentials are wrong or cannot be written; the text is fit for the user and tells no password."""


class Entry(t.NamedTuple):
    """One password. An empty one means that there shall be none."""

    user: str
    machine: str
    login: str
    password: str


def check(entry: Entry) -> None:
    """Refuse what enroot would not find, and what would make two entries of one."""
    if not re.fullmatch(r"[\w.-]+", entry.machine):
        raise CredentialsError(
            f"{entry.machine!r} is no machine: enroot looks for the registry's name without its port"
        )
    if not re.fullmatch(r"\S+", entry.login):
        raise CredentialsError(f"the login at {entry.machine} of user {entry.user} is empty or has spaces")
    if re.search(r"\s", entry.password):
        raise CredentialsError(f"the password of {entry.login} at {entry.machine} has spaces, which netrc cannot hold")


def merge(text: str, entries: t.Iterable[Entry]) -> str:
    """Replace or add lines, one to an entry as enroot needs it; what else a user has there stays."""
    lines = text.splitlines()
    for entry in entries:
        check(entry)
        new = f"machine {entry.machine} login {entry.login} password {entry.password}"
        places = [number for number, line in enumerate(lines) if _who(line) == (entry.machine, entry.login)]
        if places and entry.password:
            lines[places[0]] = new
        for number in reversed(places[1:] if entry.password else places):
            del lines[number]
        if not places and entry.password:
            lines.append(new)
    return "".join(f"{line}\n" for line in lines)


def _who(line: str) -> tuple[str, str]:
    found = _LINE.fullmatch(line)
    return (found[1], found[2]) if found else ("", "")


def path(user: str) -> str:
    try:
        return f"{pwd.getpwnam(user).pw_dir}/{FILE}"
    except KeyError as exc:
        raise CredentialsError(f"this host knows no user {user}") from exc


def read(user: str, place: str) -> tuple[str, str]:
    """Return mode and content; no mode where there is no file."""
    outcome = run(_as(user, _READ, place), _TIMEOUT)
    if outcome.rc != 0:
        raise CredentialsError(f"user {user} cannot read {place}: {outcome.problem}")
    mode, dummy, content = outcome.out.partition("\n")
    return ("", "") if mode == "none" else (mode, content)


def write(user: str, place: str, content: str) -> None:
    outcome = run(_as(user, _WRITE, place), _TIMEOUT, data=content)
    if outcome.rc != 0:
        raise CredentialsError(f"user {user} cannot write {place}: {outcome.problem}")


def _as(user: str, script: str, place: str) -> list[str]:
    return ["runuser", "-u", user, "--", "/bin/sh", "-c", script, "sh", place]
