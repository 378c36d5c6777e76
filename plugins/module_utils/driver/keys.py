# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenPGP public keys: their fingerprints by RFC 4880 and RFC 9580, without gpg, which hosts may lack."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import typing as t

PUBLIC_KEY = 6
_ARMOUR = re.compile(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(.*?)-----END PGP PUBLIC KEY BLOCK-----", re.DOTALL)


class KeyFault(ValueError):
    """A file is no public key, or not the expected one; the text is fit for the user."""


class Packet(t.NamedTuple):
    tag: int
    body: bytes


def dearmour(content: bytes) -> bytes:
    """Return the packets of all armoured blocks of a file; a file without armour is packets."""
    blocks = _ARMOUR.findall(content)
    if not blocks:
        return content
    found = b""
    for block in blocks:
        lines = block.replace(b"\r", b"").split(b"\n")
        # Headers, such as "Version: GnuPG v2", end with an empty line; some files have none at all.
        start = lines.index(b"") + 1 if b"" in lines[:-1] else 0
        text = b"".join(line for line in lines[start:] if line and not line.startswith(b"="))
        try:
            found += base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as exc:
            raise KeyFault(f"the armoured key cannot be decoded: {exc}") from exc
    return found


def packets(content: bytes) -> t.Iterator[Packet]:
    """Split a transferable key; a length that goes beyond the end is a fault."""
    at = 0
    while at < len(content):
        head = content[at]
        if not head & 0x80:
            raise KeyFault("it is no OpenPGP key")
        tag, at, length = _length(content, at, head)
        if length < 0 or at + length > len(content):
            raise KeyFault("the key is cut short")
        yield Packet(tag, content[at : at + length])
        at += length


def _length(content: bytes, at: int, head: int) -> tuple[int, int, int]:
    """Return tag, where the body begins, and its length; -1 for lengths that keys do not have."""
    rest = content[at + 1 : at + 6].ljust(5, b"\0")
    if head & 0x40:
        tag, first = head & 0x3F, rest[0]
        if first < 192:
            return tag, at + 2, first
        if first < 224:
            return tag, at + 3, ((first - 192) << 8) + rest[1] + 192
        return (tag, at + 6, int.from_bytes(rest[1:5], "big")) if first == 255 else (tag, at, -1)
    size = {0: 1, 1: 2, 2: 4}.get(head & 3, 0)
    return (head >> 2) & 0xF, at + 1 + size, int.from_bytes(rest[:size], "big") if size else -1


def fingerprint(body: bytes) -> str:
    """Return the fingerprint of a key packet of version 4, or 6."""
    if body[:1] == b"\x04":
        # RFC 4880 has fingerprints by SHA-1; Python 3.8 cannot be told that it is no matter of security.
        return hashlib.new("sha1", b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()  # noqa: S324
    if body[:1] == b"\x06":
        return hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    raise KeyFault(f"a key of version {body[0] if body else 'nothing'} is not accepted")


def primary(content: bytes) -> list[str]:
    """Return the fingerprints of all primary keys of a file."""
    return [fingerprint(packet.body) for packet in packets(dearmour(content)) if packet.tag == PUBLIC_KEY]


def proved(content: bytes, expected: t.Collection[str]) -> bytes:
    """Return the packets of a file in which every primary key is expected; whatever it holds, apt would trust.

    A file that begins with another packet, such as a secret key, is refused.
    """
    wanted = {re.sub(r"[\s:]", "", one).upper() for one in expected}
    if not wanted or any(not re.fullmatch(r"[0-9A-F]{40}|[0-9A-F]{64}", one) for one in wanted):
        raise KeyFault(
            "a fingerprint has 40 hexadecimal digits (or 64), such as EB693B3035CD5710E231E123A4B469963BF863CC"
        )
    raw = dearmour(content)
    found = list(packets(raw))
    keys = [fingerprint(packet.body) for packet in found if packet.tag == PUBLIC_KEY]
    if not found or found[0].tag != PUBLIC_KEY:
        raise KeyFault("it holds no public key")
    strange = sorted(set(keys) - wanted)
    if strange:
        raise KeyFault(f"it holds the key {strange[0]}, and expected is {' or '.join(sorted(wanted))}")
    return raw
