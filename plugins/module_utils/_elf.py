# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read shared libraries without running any of them: their constants, and for which GPUs they hold code. Private.

Layouts and numbers are those of the System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
import typing as t
from pathlib import Path

# Constants: what is read is what the dynamic linker would use (program headers and the dynamic section), so it also
# holds for a library whose section headers were stripped. No I/O.


_LOAD, _DYNAMIC = 1, 2
_HASH, _STRTAB, _SYMTAB, _GNU_HASH = 4, 5, 6, 0x6FFFFEF5
_LIMIT = 1 << 16  # a plugin has some dozens of symbols; this is for files that lie


class ElfError(ValueError):
    """The file is no shared library, or not whole; the text is fit for the user."""


class Symbol(t.NamedTuple):
    address: int
    size: int


class Library:
    """One shared library, as bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        if data[:4] != b"\x7fELF":
            raise ElfError("it is no ELF file")
        kind, order = (data[4:6] + b"\0\0")[:2]
        if kind not in (1, 2) or order not in (1, 2):
            raise ElfError("its ELF header is damaged")
        self._wide = kind == 2
        self._order = "<" if order == 1 else ">"
        self._word = "Q" if self._wide else "I"
        self._segments = self._program_headers()
        self._tags = self._dynamic()
        self.symbols = self._symbols()

    def number(self, name: str) -> int:
        """Return the value of a constant of type unsigned int."""
        symbol = self._find(name)
        if symbol.size != 4:
            raise ElfError(f"its {name} is no number: {symbol.size} bytes")
        return int(self._at(symbol.address, "I")[0])

    def text(self, name: str) -> str:
        """Return the value of a constant array of characters."""
        symbol = self._find(name)
        return self._take(self._offset(symbol.address), symbol.size).split(b"\0")[0].decode(errors="replace")

    def _find(self, name: str) -> Symbol:
        if name not in self.symbols:
            raise ElfError(f"it has no symbol {name}")
        return self.symbols[name]

    def _take(self, offset: int, size: int) -> bytes:
        part = self._data[offset : offset + size] if offset >= 0 else b""
        if len(part) != size:
            raise ElfError(f"it ends before byte {offset + size}: it was cut short")
        return part

    def _unpack(self, offset: int, layout: str) -> tuple[int, ...]:
        shape = struct.Struct(self._order + layout)
        return shape.unpack(self._take(offset, shape.size))

    def _at(self, address: int, layout: str) -> tuple[int, ...]:
        return self._unpack(self._offset(address), layout)

    def _offset(self, address: int) -> int:
        for kind, offset, start, size in self._segments:
            if kind == _LOAD and start <= address < start + size:
                return offset + address - start
        raise ElfError(f"address {address:#x} is in none of its segments")

    def _program_headers(self) -> list[tuple[int, int, int, int]]:
        """Return type, offset in the file, address and size in the file of each segment."""
        layout = "HHIQQQIHHHHHH" if self._wide else "HHIIIIIHHHHHH"
        header = self._unpack(16, layout)
        kind, table, size, count = header[0], header[4], header[8], header[9]
        if kind != 3:
            raise ElfError("it is no shared library")
        headers = []
        for index in range(count):
            if self._wide:
                entry = self._unpack(table + index * size, "IIQQQQ")
                headers.append((entry[0], entry[2], entry[3], entry[5]))
            else:
                entry = self._unpack(table + index * size, "IIIII")
                headers.append((entry[0], entry[1], entry[2], entry[4]))
        return headers

    def _dynamic(self) -> dict[int, int]:
        for kind, offset, dummy, size in self._segments:
            if kind == _DYNAMIC:
                step = struct.calcsize(f"={self._word}{self._word}")
                pairs = [self._unpack(offset + at, self._word * 2) for at in range(0, size - step + 1, step)]
                return {pair[0]: pair[1] for pair in reversed(pairs)}
        raise ElfError("it has no dynamic section")

    def _symbols(self) -> dict[str, Symbol]:
        """Return all symbols that the library defines for others."""
        if _SYMTAB not in self._tags or _STRTAB not in self._tags:
            raise ElfError("it has no table of symbols")
        table, size = self._offset(self._tags[_SYMTAB]), 24 if self._wide else 16
        symbols = {}
        for index in range(1, min(self._count(), _LIMIT)):
            if self._wide:
                name, dummy, dummy, section, address, length = self._unpack(table + index * size, "IBBHQQ")
            else:
                name, address, length, dummy, dummy, section = self._unpack(table + index * size, "IIIBBH")
            if section:  # else somebody else defines it
                symbols[self._name(name)] = Symbol(address, length)
        return symbols

    def _name(self, index: int) -> str:
        begin = self._offset(self._tags[_STRTAB]) + index
        end = self._data.find(b"\0", begin)
        return self._take(begin, max(end - begin, 0)).decode(errors="replace")

    def _count(self) -> int:
        """Return the number of symbols, which only the hash tables beside the table of symbols have."""
        if _HASH in self._tags:
            return self._at(self._tags[_HASH], "II")[1]
        if _GNU_HASH not in self._tags:
            raise ElfError("it has no hash table of symbols")
        base = self._tags[_GNU_HASH]
        buckets, first, bloom, dummy = self._at(base, "IIII")
        start = base + 16 + bloom * (8 if self._wide else 4)
        last = max(self._at(start, f"{min(buckets, _LIMIT)}I"), default=0)
        chain = start + 4 * buckets
        while last >= first and not self._at(chain + 4 * (last - first), "I")[0] & 1:
            last += 1
            if last > _LIMIT:
                raise ElfError("its hash table of symbols has no end")
        return last + 1


# Device code: what ``cuobjdump --list-elf --list-ptx`` says, without a CUDA toolkit. nvcc puts its code into section
# ``.nv_fatbin``: containers, each of a header and its images, each of a header that names kind and architecture and of
# the image, mostly compressed, which is not looked at.


FATBIN = b".nv_fatbin"
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
    for content in _sections(path, FATBIN):
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
                raise FatbinError(f"{path}: what is at {position} of {FATBIN.decode()} is no container of device code")
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
        raise FatbinError(f"{path}: {FATBIN.decode()} ends in the middle of device code") from exc
