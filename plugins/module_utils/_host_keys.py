# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public SSH host keys, as /etc/ssh/ssh_host_*_key.pub has them. Private."""

from __future__ import annotations

import re
import typing as t

# A key without its comment. sshd makes no other types, but for ssh-dss, which OpenSSH does not accept any more.
_KEY = r"(?:ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) [A-Za-z0-9+/]{16,2000}={0,3}"
_LINE = re.compile(rf"(?P<key>{_KEY})(?: [^\r\n]*)?")


def is_key(text: str) -> bool:
    """Say whether a text is one key, with or without a comment, and nothing that makes another line of known_hosts."""
    return _LINE.fullmatch(text) is not None


def read(text: str) -> list[str]:
    """Return the keys of a text, each once and without its comment, which the machine chose; other lines are none."""
    keys: t.Iterator[str] = (match["key"] for match in map(_LINE.fullmatch, text.split("\n")) if match)
    return list(dict.fromkeys(keys))
