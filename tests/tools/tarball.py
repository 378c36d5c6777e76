# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the tarball that users install, the same bytes from the same files: ``tarball.py DIRECTORY``

``ansible-galaxy collection build`` packs files in the order in which the file system lists them, and with the times of
the checkout, to fractions of a second. Sorted, with the time of the commit, anybody can make a release again and
compare; and with directories first, like files side by side and no such headers it is smaller by a twentieth: gzip sees
32 KB back. libdeflate writes the gzip: as small as it can be made, by another twentieth smaller than zlib's.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import typing as t
from pathlib import Path, PurePosixPath

import deflate

ROOT = Path(__file__).resolve().parents[2]
# libdeflate's highest level.
SMALLEST = 12


def build(directory: Path, root: Path = ROOT) -> Path:
    """Build the collection and return the tarball, which takes the place of an older one of its name."""
    galaxy = [sys.executable, "-m", "ansible.cli.galaxy", "collection", "build", str(root)]
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([*galaxy, "--output-path", place], check=True, stdout=subprocess.DEVNULL)
        (made,) = Path(place).glob("*.tar.gz")
        content = settled(made.read_bytes(), moment(root))
    directory.mkdir(parents=True, exist_ok=True)
    tarball = directory / made.name
    tarball.write_bytes(content)
    return tarball


def moment(root: Path) -> int:
    """Return the time that the files get: SOURCE_DATE_EPOCH, else that of the commit; 0 outside of a checkout."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    asked = subprocess.run(
        ["git", "-C", str(root), "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    return int(asked.stdout.strip() or 0)


def settled(content: bytes, seconds: int) -> bytes:
    """Return a collection's tarball with its files and its list of them in order, all of one time."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        files = {member: _content(archive, member) for member in archive}
    texts = {member.name: text for member, text in files.items()}
    listed = json.loads(texts["FILES.json"] or b"")
    listed["files"].sort(key=lambda entry: entry["name"])
    texts["FILES.json"] = _written(listed)
    manifest = json.loads(texts["MANIFEST.json"] or b"")
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(texts["FILES.json"]).hexdigest()
    texts["MANIFEST.json"] = _written(manifest)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for member in sorted(files, key=lambda member: (not member.isdir(), place(member.name))):
            text = texts[member.name]
            # A time of the checkout has fractions of a second, which stand in a header of their own.
            member.mtime, member.size, member.pax_headers = seconds, len(text or b""), {}
            archive.addfile(member, io.BytesIO(text) if text is not None else None)
    return deflate.gzip_compress(packed.getvalue(), SMALLEST)


def place(name: str) -> tuple[str, str, str]:
    """Return the place of a file among the others: in its directory by kind, and a role's specification right behind
    its README, which repeats the texts.
    """
    path = PurePosixPath(name.replace("/meta/", "/.meta/"))
    return str(path.parent), path.suffix, path.name


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes | None:
    """Return a file's content, None of a directory or a link."""
    stream: t.IO[bytes] | None = archive.extractfile(member) if member.isfile() else None
    return stream.read() if stream else None


def _written(document: t.Any) -> bytes:
    """Write JSON as ansible-galaxy does."""
    return json.dumps(document, indent=True).encode()


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
