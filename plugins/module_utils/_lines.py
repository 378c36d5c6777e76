# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values for files that are made of lines: in slurm.conf, fstab or a unit a newline in a value is another setting."""

from __future__ import annotations

import re
import typing as t

# C0 and C1 controls, and the separators that Unicode calls line and paragraph.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class LineError(ValueError):
    """A value would be more than a part of one line; the text is fit for the user."""


def controls(value: t.Any, path: str = "") -> list[str]:
    """Return the paths of texts, names included, that hold a control character."""
    if isinstance(value, str):
        return [path] if _CONTROL.search(value) else []
    if isinstance(value, t.Mapping):
        below = [
            place for key, inner in value.items() for place in controls(inner, f"{path}.{_plain(key)}".lstrip("."))
        ]
        return [*(f"{path}.{_plain(key)}".lstrip(".") for key in value if controls(str(key), "x")), *below]
    if isinstance(value, (list, tuple)):
        return [place for number, inner in enumerate(value) for place in controls(inner, f"{path}[{number}]")]
    return []


def one_line(value: t.Any, what: str) -> t.Any:
    """Return a value as it is; raises LineError where a text in it holds a control character."""
    places = controls(value, what)
    if places:
        raise LineError(
            f"{', '.join(places)}: a value for a file that is made of lines cannot hold a newline or another control "
            "character. In YAML write it in one line, or with >- instead of > or |"
        )
    return value


def _plain(key: t.Any) -> str:
    return _CONTROL.sub("?", str(key))


# Public SSH host keys, which become lines of known_hosts.


# A key without its comment. sshd makes no other types, but for ssh-dss, which OpenSSH does not accept any more.
_HOST_KEY = r"(?:ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) [A-Za-z0-9+/]{16,2000}={0,3}"
_KNOWN_HOST = re.compile(rf"(?P<key>{_HOST_KEY})(?: [^\r\n]*)?")


def is_host_key(text: str) -> bool:
    """Say whether a text is one key, with or without a comment, and nothing that makes another line of known_hosts."""
    return _KNOWN_HOST.fullmatch(text) is not None


def host_keys(text: str) -> list[str]:
    """Return the keys of a text, each once and without its comment, which the machine chose; other lines are none."""
    keys: t.Iterator[str] = (match["key"] for match in map(_KNOWN_HOST.fullmatch, text.split("\n")) if match)
    return list(dict.fromkeys(keys))
