# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""enroot's configuration, links and credentials: wanted against there."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import MARK
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run

# The files that configure enroot, from plain values. Pure, private.


# What config::load in enroot.in takes.
_KEY = re.compile(r"ENROOT_[A-Z_]+|(MELLANOX|NVIDIA)_\w+|SSL_CERT_(DIR|FILE)|(all|no|http|https)_proxy")
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
HEAD = f"# {MARK}, role enroot. Changes made here are lost.\n"
SETTINGS = "/etc/enroot/enroot.conf.d/10-hpcai.conf"
MOUNTS = "/etc/enroot/mounts.d/50-hpcai.fstab"
ENVIRONMENT = "/etc/enroot/environ.d/50-hpcai.env"
HOOKS = "/etc/enroot/hooks.d"
EXTRA = "/usr/share/enroot/hooks.d"
_OURS = "hpcai-"


class ConfError(ValueError):
    """A value cannot be written for enroot; the text is fit for the user."""


def plain(value: t.Any) -> str:
    """Write a value as enroot reads it."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def settings(values: t.Mapping[str, t.Any]) -> str | None:
    """Write settings, expressions of the shell included; None where there are none."""
    lines = []
    for key, value in sorted(values.items()):
        text = plain(value)
        if not _KEY.fullmatch(key):
            raise ConfError(f"enroot has no setting {key}, and would ignore it")
        _one_line(key, text)
        try:
            shlex.split(text)
        except ValueError as exc:
            raise ConfError(f"no shell can read the value of {key}, {text!r}: {exc}") from exc
        lines.append(f"{key} {text}\n")
    return HEAD + "".join(lines) if lines else None


def environment(values: t.Mapping[str, t.Any]) -> str | None:
    """Write variables that every container gets."""
    for key, value in values.items():
        if not _VARIABLE.fullmatch(key):
            raise ConfError(f"{key!r} is no name for a variable")
        _one_line(key, str(value))
    return HEAD + "".join(f"{key}={value}\n" for key, value in sorted(values.items())) if values else None


def mounts(lines: t.Sequence[str]) -> str | None:
    """Write mounts that every container gets, each a line of fstab."""
    for line in lines:
        _one_line("a mount", line)
        if not 2 <= len(line.split()) <= 6:
            raise ConfError(f"a mount is SOURCE TARGET [TYPE [OPTIONS]], as in fstab: {line!r}")
    return HEAD + "".join(f"{line}\n" for line in lines) if lines else None


def _one_line(name: str, text: str) -> None:
    if "\n" in text or "\r" in text or "\0" in text:
        raise ConfError(f"{name} has to be one line: {text!r}")


def hooks(wanted: t.Sequence[str], carried: t.Sequence[str]) -> dict[str, str]:
    """Return links for the optional hooks that are wanted, by the file names that the package carries.

    ``slurm-pmi`` is the package's ``50-slurm-pmi.sh``; the link has a name of ours, so that others' links stay.
    """
    names = {re.sub(r"^\d+-|\.sh$", "", one): one for one in carried}
    unknown = [one for one in wanted if one not in names]
    if unknown:
        raise ConfError(f"enroot carries no hook {', '.join(unknown)} in {EXTRA}, but {', '.join(sorted(names))}")
    found = {}
    for one in wanted:
        number, dummy, rest = names[one].partition("-")
        found[f"{HOOKS}/{number}-{_OURS}{rest}"] = f"{EXTRA}/{names[one]}"
    return found


def is_ours(hook: str) -> bool:
    """Tell whether a link in hooks.d is one of ours, by its name."""
    return bool(re.fullmatch(rf"\d+-{_OURS}.+\.sh", hook))


def sysctls(now: t.Mapping[str, str], noted: str, threads: int) -> str | None:
    """Write what the kernel has to allow; only what it knows, and limits only where they are closed.

    The kernel's own limit of namespaces is half of threads-max (kernel/fork.c, fork_init). One that was raised before
    is in the file that was written then, and stays in it.
    """
    wanted = {}
    if "kernel.unprivileged_userns_clone" in now:
        wanted["kernel.unprivileged_userns_clone"] = "1"
    for name in ("user.max_user_namespaces", "user.max_mnt_namespaces"):
        before = re.search(rf"^{re.escape(name)} = (\d+)$", noted, re.MULTILINE)
        if before:
            wanted[name] = before[1]
        elif name in now and int(now[name]) <= 1:
            wanted[name] = str(threads // 2)
    return HEAD + "".join(f"{key} = {value}\n" for key, value in wanted.items()) if wanted else None


# Links of ours to enroot's optional hooks: made and removed, others left alone.


class EnrootLink(t.NamedTuple):
    """One link that changes; no target means that there is none, or shall be none."""

    path: str
    before: str
    after: str


def plan(wanted: t.Sequence[str], present: bool, root: str = "/") -> list[EnrootLink]:
    """Compare. Where enroot is not installed (yet, in check mode) nobody knows its hooks."""
    extra, place = Path(root, EXTRA.lstrip("/")), Path(root, HOOKS.lstrip("/"))
    carried = sorted(path.name for path in extra.glob("*.sh")) if present else []
    goals = hooks(wanted, carried) if present else {}
    now = {f"{HOOKS}/{path.name}": path for path in place.glob("*.sh") if is_ours(path.name)}
    before = {name: os.readlink(path) if path.is_symlink() else "(a file)" for name, path in now.items()}
    names = sorted({*goals, *before})
    changed = [name for name in names if before.get(name, "") != goals.get(name, "")]
    return [EnrootLink(name, before.get(name, ""), goals.get(name, "")) for name in changed]


def apply(changes: t.Iterable[EnrootLink]) -> None:
    for one in changes:
        Path(one.path).unlink(missing_ok=True)
        if one.after:
            Path(one.path).symlink_to(one.after)


def differences(changes: t.Iterable[EnrootLink]) -> list[dict[str, str]]:
    return [
        {
            "before_header": one.path,
            "after_header": one.path,
            "before": f"-> {one.before}\n" if one.before else "",
            "after": f"-> {one.after}\n" if one.after else "",
        }
        for one in changes
    ]


def told(values: t.Mapping[str, str]) -> list[dict[str, str]]:
    """What is set without a file: of the kernel, and of programs."""
    return [{"before_header": key, "after_header": key, "before": "", "after": f"{values[key]}\n"} for key in values]


# Passwords for registries in users' own files, read and written with no more than the user's own rights.


FILE = ".config/enroot/.credentials"
_TIMEOUT = 60.0
_READ = 'if [ -e "$1" ]; then stat -c %a "$1" && cat "$1"; else echo none; fi'
# Beside the old one and then over it: a reader sees the one or the other, and both are the user's alone.
_WRITE = 'umask 077; mkdir -p "${1%/*}" && new=$(mktemp "$1.XXXXXX") && cat > "$new" && mv -f "$new" "$1"'
_LINE = re.compile(r"\s*machine\s+(\S+)\s+login\s+(\S+)\s+password\s+\S.*")


class CredentialsError(ValueError):
    """Credentials are wrong or cannot be written; the text is fit for the user and tells no password."""


class CredentialEntry(t.NamedTuple):
    """One password. An empty one means that there shall be none."""

    user: str
    machine: str
    login: str
    password: str


def check(entry: CredentialEntry) -> None:
    """Refuse what enroot would not find, and what would make two entries of one."""
    if not re.fullmatch(r"[\w.-]+", entry.machine):
        raise CredentialsError(
            f"{entry.machine!r} is no machine: enroot looks for the registry's name without its port"
        )
    if not re.fullmatch(r"\S+", entry.login):
        raise CredentialsError(f"the login at {entry.machine} of user {entry.user} is empty or has spaces")
    if re.search(r"\s", entry.password):
        raise CredentialsError(f"the password of {entry.login} at {entry.machine} has spaces, which netrc cannot hold")


def merge(text: str, entries: t.Iterable[CredentialEntry]) -> str:
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
