# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For which GPUs a shared object holds code: what ``cuobjdump --list-elf --list-ptx`` says, without a CUDA toolkit.

nvcc puts its code into the section ``.nv_fatbin`` of the ELF file: containers, each of a header and its images, each of
a header that names kind and architecture and of the image, mostly compressed, which is not looked at.
"""

from __future__ import annotations

import struct
import typing as t
from pathlib import Path

SECTION = b".nv_fatbin"
_MAGIC = 0xBA55ED50
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of what follows
_IMAGE = struct.Struct("<HHIQ")  # kind, version, size of this header, size of the image
_ARCHITECTURE = 28  # where an image's header has its architecture, such as 90
_KINDS = {1: "compute", 2: "sm"}  # PTX, machine code
_ELF64_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_ELF64_SECTION = struct.Struct("<IIQQQQIIQQ")


class FatbinError(ValueError):
    """A file is no ELF file of 64 bits, or its device code is in no known form; the text is fit for the user."""


def architectures(path: Path) -> list[str]:
    """Return what a shared object has device code for, such as ``sm_90`` and ``compute_90`` (PTX); none without any."""
    images: set[tuple[int, str]] = set()
    for content in _sections(path, SECTION):
        images.update(_images(path, content))
    return [f"{kind}_{number}" for number, kind in sorted(images)]


def _sections(path: Path, wanted: bytes) -> t.Iterator[bytes]:
    with path.open("rb") as file:
        try:
            header = _ELF64_HEADER.unpack(file.read(_ELF64_HEADER.size))
        except struct.error as exc:
            raise FatbinError(f"{path} is no ELF file") from exc
        if header[0][:6] != b"\x7fELF\x02\x01":
            raise FatbinError(f"{path} is no ELF file of 64 bits, little-endian")
        offset, size, count, names = header[6], header[11], header[12], header[13]
        file.seek(offset)
        table = file.read(size * count)
        try:
            rows = [_ELF64_SECTION.unpack_from(table, size * number) for number in range(count)]
            file.seek(rows[names][4])
            texts = file.read(rows[names][5])
        except (struct.error, IndexError) as exc:
            raise FatbinError(f"{path} ends before its sections do") from exc
        for row in rows:
            if texts[row[0] :].partition(b"\0")[0] == wanted:
                file.seek(row[4])
                yield file.read(row[5])


def _images(path: Path, content: bytes) -> t.Iterator[tuple[int, str]]:
    position = 0
    try:
        while position < len(content):
            # Containers are aligned.
            if not content[position]:
                position += 1
                continue
            magic, dummy, header, length = _CONTAINER.unpack_from(content, position)
            if magic != _MAGIC:
                raise FatbinError(f"{path}: what is at {position} of {SECTION.decode()} is no container of device code")
            position += header
            end = position + length
            while position < end:
                kind, dummy, header, length = _IMAGE.unpack_from(content, position)
                (architecture,) = struct.unpack_from("<I", content, position + _ARCHITECTURE)
                if kind in _KINDS:
                    yield architecture, _KINDS[kind]
                if not header:
                    raise FatbinError(f"{path}: an image of device code has a header without a size")
                position += header + length
            position = end
    except struct.error as exc:
        raise FatbinError(f"{path}: {SECTION.decode()} ends in the middle of device code") from exc
