# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The md superblock 1.2 of a disk, from its bytes. No I/O; private.

Read here and not by ``mdadm --examine``, because check mode looks at nodes that have no mdadm yet, and because a boot
should not need eight processes to learn what 4 KiB per disk say.
"""

from __future__ import annotations

import struct
import typing as t

OFFSET = 4096
LENGTH = 4096
_MAGIC = 0xA92B4EFC
_HEAD = 256
_LEVELS = {0: "raid0", 1: "raid1", 4: "raid4", 5: "raid5", 6: "raid6", 10: "raid10", 0xFFFFFFFF: "linear"}


class Superblock(t.NamedTuple):
    """What a member says of its array; ``slot`` is None of a spare or a device that failed."""

    uuid: str
    name: str
    level: str
    members: int
    chunk: int
    slot: int | None
    events: int


def parse(block: bytes) -> Superblock | None:
    """Read what lies `OFFSET` bytes from the start of a disk; None where that is no sound superblock 1.2."""
    if len(block) < _HEAD:
        return None
    magic, major = struct.unpack_from("<II", block, 0)
    (most,) = struct.unpack_from("<I", block, 220)
    end = _HEAD + 2 * most
    if (
        magic != _MAGIC
        or major != 1
        or end > len(block)
        or _sum(block[:end]) != struct.unpack_from("<I", block, 216)[0]
    ):
        return None
    level, dummy, dummy, chunk, members = struct.unpack_from("<IIQII", block, 72)
    (number,) = struct.unpack_from("<I", block, 160)
    (events,) = struct.unpack_from("<Q", block, 200)
    role = struct.unpack_from("<H", block, _HEAD + 2 * number)[0] if number < most else 0xFFFF
    name = block[32:64].split(b"\0")[0].decode(errors="replace")
    slot = role if role < members else None
    return Superblock(uuid_text(block[16:32]), name, _LEVELS.get(level, str(level)), members, chunk * 512, slot, events)


def uuid_text(raw: bytes) -> str:
    """Return a UUID as mdadm prints those of metadata 1.x."""
    digits = raw.hex()
    return ":".join(digits[start : start + 8] for start in range(0, 32, 8))


def _sum(block: bytes) -> int:
    """Return the checksum as the kernel does it (calc_sb_1_csum), with the field of the sum itself as zero."""
    plain = block[:216] + bytes(4) + block[220:]
    words = struct.unpack_from(f"<{len(plain) // 4}I", plain)
    total = sum(words)
    if len(plain) % 4 == 2:
        total += struct.unpack_from("<H", plain, len(plain) - 2)[0]
    return ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF
