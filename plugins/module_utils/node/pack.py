# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file that a bundle is: the same content makes the same bytes. Private."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import tarfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _managed_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.content import BundleError, File

NAME = "hpcai-node"
SUMS = "SHA256SUMS"
SHORT = 12
_SECRET = re.compile(r"(^|_)(password|passwd|passphrase|secret|token|sas|credentials?|(?<!public_)key)$", re.IGNORECASE)


def sums(files: t.Mapping[str, File]) -> str:
    """Return the digests of all files, as sha256sum -c reads them."""
    bad = sorted(path for path in files if "\n" in path or "\\" in path)
    if bad:
        raise BundleError(f"no bundle can hold a file with such a name: {bad[0]!r}")
    return "".join(f"{sha256(files[path].data)}  {path}\n" for path in sorted(files))


def digest(text: str) -> str:
    """Return what a bundle is called by."""
    return sha256(text.encode())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def version(told: str) -> str:
    """Return the number of a version made from a digest, for those who want three numbers."""
    return f"1.0.{int(told[:8], 16)}"


def folder(told: str) -> str:
    return f"{NAME}-{told[:SHORT]}"


def pack(files: t.Mapping[str, File], name: str) -> bytes:
    """Return the archive: sorted, of root, without times."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(files):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mode = len(files[path].data), files[path].mode
            archive.addfile(entry, io.BytesIO(files[path].data))
    return gzip.compress(out.getvalue(), compresslevel=6, mtime=0)


def intact(path: Path, name: str, told: str) -> bool:
    """Return whether a bundle is there already, with the content that is wanted."""
    try:
        with tarfile.open(path) as archive:
            found = {entry.name: archive.extractfile(entry) for entry in archive if entry.isfile()}
            read = {key[len(name) + 1 :]: File(file.read()) for key, file in found.items() if file}
        text = read.pop(SUMS).data.decode()
        return digest(text) == told and sums(read) == text
    except (OSError, EOFError, KeyError, ValueError, tarfile.TarError):
        return False


def put(data: bytes, path: Path) -> None:
    """Write a file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _managed_file.replace(path, data, "", 0o644)


def document(value: t.Any) -> File:
    """Return JSON, which is YAML, too, and needs no library on the node."""
    return File((json.dumps(value, indent=2, sort_keys=True) + "\n").encode())


def secrets(value: t.Any, path: str = "") -> list[str]:
    """Return where names say that a value is a secret; everybody on the node may read it."""
    if isinstance(value, dict):
        return [one for key, inner in value.items() for one in _secret(str(key), inner, f"{path}.{key}".lstrip("."))]
    if isinstance(value, list):
        return [one for number, inner in enumerate(value) for one in secrets(inner, f"{path}[{number}]")]
    return []


def _secret(key: str, inner: t.Any, path: str) -> list[str]:
    if isinstance(inner, str) and inner and _SECRET.search(key):
        return [path]
    return secrets(inner, path)
