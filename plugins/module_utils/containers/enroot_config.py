# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""enroot's configuration files, links to its hooks, and users' credentials."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import MARK
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import run

# The files that configure enroot.


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


def hooks(requested: t.Sequence[str], carried: t.Sequence[str]) -> dict[str, str]:
    """Return the links for the requested optional hooks; ``carried`` are the file names in the package.

    ``slurm-pmi`` is the package's ``50-slurm-pmi.sh``; the link has a name of ours, so that others' links stay.
    """
    names = {re.sub(r"^\d+-|\.sh$", "", hook): hook for hook in carried}
    unknown = [hook for hook in requested if hook not in names]
    if unknown:
        raise ConfError(f"enroot carries no hook {', '.join(unknown)} in {EXTRA}, but {', '.join(sorted(names))}")
    links = {}
    for hook in requested:
        number, dummy, stem = names[hook].partition("-")
        links[f"{HOOKS}/{number}-{_OURS}{stem}"] = f"{EXTRA}/{names[hook]}"
    return links


def is_ours(hook: str) -> bool:
    """Return whether a link in hooks.d is one of ours, by its name."""
    return bool(re.fullmatch(rf"\d+-{_OURS}.+\.sh", hook))


def sysctls(observed: t.Mapping[str, str], noted: str, threads: int) -> str | None:
    """Write the settings that allow namespaces; only those the kernel has, and limits only where they are 0 or 1.

    The kernel's own limit of namespaces is half of threads-max (kernel/fork.c, fork_init). One that was raised before
    is in the file that was written then, and stays in it.
    """
    values = {}
    if "kernel.unprivileged_userns_clone" in observed:
        values["kernel.unprivileged_userns_clone"] = "1"
    for name in ("user.max_user_namespaces", "user.max_mnt_namespaces"):
        before = re.search(rf"^{re.escape(name)} = (\d+)$", noted, re.MULTILINE)
        if before:
            values[name] = before[1]
        elif name in observed and int(observed[name]) <= 1:
            values[name] = str(threads // 2)
    return HEAD + "".join(f"{key} = {value}\n" for key, value in values.items()) if values else None


# Our links to enroot's optional hooks; other links are left alone.


class EnrootLink(t.NamedTuple):
    """One link that changes; an empty target means that there is no link before, or after."""

    path: str
    before: str
    after: str


def plan(requested: t.Sequence[str], present: bool, root: str = "/") -> list[EnrootLink]:
    """Plan the links. Where enroot is not installed, as in check mode before it is, its hooks are not known."""
    extra_dir, hooks_dir = Path(root, EXTRA.lstrip("/")), Path(root, HOOKS.lstrip("/"))
    carried = sorted(path.name for path in extra_dir.glob("*.sh")) if present else []
    links = hooks(requested, carried) if present else {}
    own = {f"{HOOKS}/{path.name}": path for path in hooks_dir.glob("*.sh") if is_ours(path.name)}
    before = {name: os.readlink(path) if path.is_symlink() else "(a file)" for name, path in own.items()}
    names = sorted({*links, *before})
    changed = [name for name in names if before.get(name, "") != links.get(name, "")]
    return [EnrootLink(name, before.get(name, ""), links.get(name, "")) for name in changed]


def apply(changes: t.Iterable[EnrootLink]) -> None:
    for link in changes:
        Path(link.path).unlink(missing_ok=True)
        if link.after:
            Path(link.path).symlink_to(link.after)


def differences(changes: t.Iterable[EnrootLink]) -> list[dict[str, str]]:
    return [
        {
            "before_header": link.path,
            "after_header": link.path,
            "before": f"-> {link.before}\n" if link.before else "",
            "after": f"-> {link.after}\n" if link.after else "",
        }
        for link in changes
    ]


def setting_differences(values: t.Mapping[str, str]) -> list[dict[str, str]]:
    """Return the diff of settings that no file holds: of the kernel, and of programs."""
    return [{"before_header": key, "after_header": key, "before": "", "after": f"{values[key]}\n"} for key in values]


# Passwords for registries in users' own files, read and written as the user.


FILE = ".config/enroot/.credentials"
_TIMEOUT = 60.0
_READ = 'if [ -e "$1" ]; then stat -c %a "$1" && cat "$1"; else echo none; fi'
# Written beside the old file and then renamed: a reader sees one or the other, and only the user can read them.
_WRITE = 'umask 077; mkdir -p "${1%/*}" && new=$(mktemp "$1.XXXXXX") && cat > "$new" && mv -f "$new" "$1"'
_LINE = re.compile(r"\s*machine\s+(\S+)\s+login\s+(\S+)\s+password\s+\S.*")


class CredentialsError(ValueError):
    """Credentials are wrong or cannot be written; the text is fit for the user and contains no password."""


class CredentialEntry(t.NamedTuple):
    """The password of one login. An empty one means that the entry is removed."""

    user: str
    machine: str
    login: str
    password: str


def check(entry: CredentialEntry) -> None:
    """Refuse an entry that enroot would not find, or that would not stay one entry of netrc."""
    if not re.fullmatch(r"[\w.-]+", entry.machine):
        raise CredentialsError(
            f"{entry.machine!r} is no machine: enroot looks for the registry's name without its port"
        )
    if not re.fullmatch(r"\S+", entry.login):
        raise CredentialsError(f"the login at {entry.machine} of user {entry.user} is empty or has spaces")
    if re.search(r"\s", entry.password):
        raise CredentialsError(f"the password of {entry.login} at {entry.machine} has spaces, which netrc cannot hold")


def merge(text: str, entries: t.Iterable[CredentialEntry]) -> str:
    """Replace or add lines, one for each entry as enroot needs it; other lines of the user stay."""
    lines = text.splitlines()
    for entry in entries:
        check(entry)
        new = f"machine {entry.machine} login {entry.login} password {entry.password}"
        positions = [number for number, line in enumerate(lines) if _who(line) == (entry.machine, entry.login)]
        if positions and entry.password:
            lines[positions[0]] = new
        for number in reversed(positions[1:] if entry.password else positions):
            del lines[number]
        if not positions and entry.password:
            lines.append(new)
    return "".join(f"{line}\n" for line in lines)


def _who(line: str) -> tuple[str, str]:
    match = _LINE.fullmatch(line)
    return (match[1], match[2]) if match else ("", "")


def path(user: str) -> str:
    try:
        return f"{pwd.getpwnam(user).pw_dir}/{FILE}"
    except KeyError as exc:
        raise CredentialsError(f"this host knows no user {user}") from exc


def read(user: str, file: str) -> tuple[str, str]:
    """Return mode and content; no mode where there is no file."""
    outcome = run(_as(user, _READ, file), _TIMEOUT)
    if outcome.rc != 0:
        raise CredentialsError(f"user {user} cannot read {file}: {outcome.problem}")
    mode, dummy, content = outcome.out.partition("\n")
    return ("", "") if mode == "none" else (mode, content)


def write(user: str, file: str, content: str) -> None:
    outcome = run(_as(user, _WRITE, file), _TIMEOUT, data=content)
    if outcome.rc != 0:
        raise CredentialsError(f"user {user} cannot write {file}: {outcome.problem}")


def _as(user: str, script: str, file: str) -> list[str]:
    return ["runuser", "-u", user, "--", "/bin/sh", "-c", script, "sh", file]
