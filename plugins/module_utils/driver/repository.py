# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module package_repository: a repository of packages whose key has a known fingerprint."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files

# OpenPGP public keys: their fingerprints by RFC 4880 and RFC 9580, without gpg, which hosts may lack.


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
    decoded = b""
    for block in blocks:
        lines = block.replace(b"\r", b"").split(b"\n")
        # Headers, such as "Version: GnuPG v2", end with an empty line; some files have none at all.
        start = lines.index(b"") + 1 if b"" in lines[:-1] else 0
        text = b"".join(line for line in lines[start:] if line and not line.startswith(b"="))
        try:
            decoded += base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as exc:
            raise KeyFault(f"the armoured key cannot be decoded: {exc}") from exc
    return decoded


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


def proved_keys(content: bytes, expected: t.Collection[str]) -> bytes:
    """Return the packets of a file in which every primary key is expected; whatever it holds, apt would trust.

    A file that begins with another packet, such as a secret key, is refused.
    """
    wanted = {re.sub(r"[\s:]", "", text).upper() for text in expected}
    if not wanted or any(not re.fullmatch(r"[0-9A-F]{40}|[0-9A-F]{64}", text) for text in wanted):
        raise KeyFault(
            "a fingerprint has 40 hexadecimal digits (or 64), such as EB693B3035CD5710E231E123A4B469963BF863CC"
        )
    raw = dearmour(content)
    parsed = list(packets(raw))
    keys = [fingerprint(packet.body) for packet in parsed if packet.tag == PUBLIC_KEY]
    if not parsed or parsed[0].tag != PUBLIC_KEY:
        raise KeyFault("it holds no public key")
    strange = sorted(set(keys) - wanted)
    if strange:
        raise KeyFault(f"it holds the key {strange[0]}, and expected is {' or '.join(sorted(wanted))}")
    return raw


# A repository and its key.


Json = t.Dict[str, t.Any]
Fetch = t.Callable[[str], bytes]

SPEC: dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "manager": {"type": "str", "choices": ["apt", "dnf"], "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "url": {"type": "str"},
    "suite": {"type": "str", "default": "/"},
    "components": {"type": "list", "elements": "str", "default": []},
    "key": {"type": "str", "no_log": False},
    "fingerprints": {"type": "list", "elements": "str", "default": []},
    "root": {"type": "path", "default": "/"},
}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")
_URL = re.compile(r"(https?|file):///?[^\s\[\]\"']+")


class RepositoryError(ValueError):
    """A repository cannot be set up; the text is fit for the user."""


class Places(t.NamedTuple):
    """Where the key and the description of a repository are."""

    key: str
    source: str


def places(name: str, manager: str) -> Places:
    if manager == "apt":
        return Places(f"/etc/apt/keyrings/hpcai-{name}.gpg", f"/etc/apt/sources.list.d/hpcai-{name}.list")
    return Places(f"/etc/pki/rpm-gpg/RPM-GPG-KEY-hpcai-{name}", f"/etc/yum.repos.d/hpcai-{name}.repo")


def source(params: t.Mapping[str, t.Any]) -> str:
    """Write the file that describes the repository."""
    name, url = params["name"], params["url"]
    head = f"# {_owned_files.MARK}, module package_repository. Changes made here are lost.\n"
    key = _at(Path(params["root"]), places(name, params["manager"]).key)
    if params["manager"] == "apt":
        words = " ".join([url, params["suite"], *params["components"]])
        return f"{head}deb [signed-by={key}] {words}\n"
    return f"{head}[hpcai-{name}]\nname=hpcai-{name}\nbaseurl={url}\nenabled=1\ngpgcheck=1\ngpgkey=file://{key}\n"


def others(files: t.Mapping[str, str], url: str, own: str) -> list[str]:
    """Return the files of others that name the repository: with two keys for one address apt reads neither."""
    plain = url.rstrip("/")
    paths = []
    for path, text in sorted(files.items()):
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        if path != own and any(re.search(rf"{re.escape(plain)}/?(\s|$)", line) for line in lines):
            paths.append(path)
    return paths


def check(params: t.Mapping[str, t.Any]) -> None:
    if not _NAME.fullmatch(params["name"]):
        raise RepositoryError(f"name {params['name']!r}: lower case letters, digits and dashes are accepted")
    if params["state"] == "absent":
        return
    missing = [name for name in ("url", "key", "fingerprints") if not params[name]]
    if missing:
        raise RepositoryError(f"{', '.join(missing)} of the repository {params['name']} is needed")
    for word in [params["suite"], *params["components"]]:
        if not re.fullmatch(r"[\w./+-]+", word):
            raise RepositoryError(f"{word!r} is no suite and no component")
    if not _URL.fullmatch(params["url"]):
        raise RepositoryError(f"url {params['url']!r} is no address of a repository, such as https://host/path/")


def key_content(params: t.Mapping[str, t.Any], have: bytes | None, fetch: Fetch | None) -> bytes | None:
    """Return the key as it is to be on the host; None where it would have to be fetched and is not (check mode).

    A key that is there and is the expected one stays: it was proved when it came, and is proved again.
    """
    expected = params["fingerprints"]
    if have is not None:
        try:
            proved_keys(have, expected)
        except KeyFault:
            pass
        else:
            return have
    if fetch is None:
        return None
    content = fetch(params["key"])
    try:
        ring = proved_keys(content, expected)
    except KeyFault as exc:
        raise RepositoryError(f"the key from {params['key']} was not taken: {exc}") from exc
    return ring if params["manager"] == "apt" else content


def perform(module: _owned_files.FileModule, params: t.Mapping[str, t.Any], fetch: Fetch) -> Json:
    """Have the repository's key and source as requested, or take both away; one that is there elsewhere stays alone."""
    check(params)
    root, where = Path(params["root"]), places(params["name"], params["manager"])
    result: Json = {"changed": False, "elsewhere": [], "source": where.source, "key": where.key, "diff": []}
    if params["state"] == "absent":
        return _absent(module, root, where, result)
    result["elsewhere"] = others(_sources(root, params["manager"]), params["url"], where.source)
    if result["elsewhere"]:
        return result
    have = root / where.key[1:]
    content = key_content(params, have.read_bytes() if have.is_file() else None, None if module.check_mode else fetch)
    entries: list[Json] = []
    if content is None:
        result["changed"] = True
    else:
        entries.append({"path": _at(root, where.key), "base64": base64.b64encode(content).decode(), "owner": "root"})
    entries.append({"path": _at(root, where.source), "content": source(params), "owner": "root"})
    for entry in entries:
        changed, diff = _owned_files.keep(module, {"mode": "0644", **entry})
        result["changed"] = result["changed"] or changed
        result["diff"] += [diff] if diff else []
    return result


def _at(root: Path, path: str) -> str:
    return str(root / path[1:])


def _sources(root: Path, manager: str) -> dict[str, str]:
    patterns = {
        "apt": ("etc/apt/sources.list", "etc/apt/sources.list.d/*.list", "etc/apt/sources.list.d/*.sources"),
        "dnf": ("etc/yum.repos.d/*.repo",),
    }[manager]
    paths = [path for pattern in patterns for path in root.glob(pattern) if path.is_file()]
    return {f"/{path.relative_to(root)}": path.read_text(encoding="utf-8", errors="replace") for path in paths}


def _absent(module: _owned_files.FileModule, root: Path, where: Places, result: Json) -> Json:
    """Remove what we wrote: the source by its mark, the key with it."""
    source, key = root / where.source[1:], root / where.key[1:]
    ours = source.is_file() and _owned_files.MARK in source.read_text(encoding="utf-8", errors="replace")
    there = [path for path in (source, key) if ours and path.exists()]
    for path in [] if module.check_mode else there:
        path.unlink()
    return {**result, "changed": bool(there)}
