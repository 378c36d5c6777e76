# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that configure enroot, from plain values. Pure, private.

enroot reads settings line by line in bash: a line it does not know is ignored, one that bash cannot parse stops every
container, and a last line without its end is lost. So all of that is refused, or seen to, here.
"""

from __future__ import annotations

import re
import shlex
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._owned_files import MARK

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
