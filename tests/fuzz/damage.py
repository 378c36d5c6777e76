# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts that are nearly what the parsers expect: fixtures with the damage that logs take."""

from __future__ import annotations

import random
import re
import typing as t

from hypothesis import strategies as st

DEBUG = [
    "node-1:21000:21044 [0] NCCL INFO Channel 00/08 :    0   1   2   3   4   5   6   7\n",
    "\nnode-1:21000:21044 [3] misc/socket.cc:50 NCCL WARN Accept failed Success\n",
    "[2026-03-14 09:26:53] 10.0.0.4:1:2 [0] NCCL INFO comm 0x55 rank 0 nranks 16 - Init COMPLETE\n",
    "Warning: Permanently added 'node-2' (ED25519) to the list of known hosts.\n",
    "srun: error: node-2: task 3: Exited with exit code 3\n",
    "--------------------------------------------------------------------------\n",
]
TAGS = ["[1,0]<stdout>:", "[1,13]<stderr>:", "[prterun-n@1,2]<stdout>: ", "0: ", "12: ", "[0] ", "\x1b[4m", "\t", "   "]
ODD = [
    "\r",
    "\r\n",
    "\0",
    "\x1b[0m",
    "\x1b[",
    "\x1b]0;",
    "\ufeff",
    "\u2028",
    "\x85",
    "\x0c",
    "\ud800",
    "\u0663",
    "\u00b2",
]
NUMBERS = [
    *"0 -1 1e999 -inf nan N/A [N/A] ERR! 1.2e+07 99999999999999999999999 0x1f 1_000 00012 1.2.3 -0".split(),
    *["\u0661\u0662", "\u00b2", "123456789012345678901234567890e-5", "9" * 5000, "[Unknown Error]", ""],
]
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def truncate(chance: random.Random, text: str, other: str) -> str:
    return text[: chance.randrange(len(text) + 1)]


def behead(chance: random.Random, text: str, other: str) -> str:
    return text[chance.randrange(len(text) + 1) :]


def cut_out(chance: random.Random, text: str, other: str) -> str:
    begin = chance.randrange(len(text) + 1)
    return text[:begin] + text[begin + chance.choice([1, 5, 80, 2000]) :]


def odd_character(chance: random.Random, text: str, other: str) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice(ODD) + text[at:]


def flip(chance: random.Random, text: str, other: str) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + chr(chance.choice([chance.randrange(32, 127), chance.randrange(0x110000)])) + text[at + 1 :]


def debug_line(chance: random.Random, text: str, other: str) -> str:
    """At the begin of a line, or glued to the middle of one."""
    at = chance.randrange(len(text) + 1)
    if chance.random() < 0.5:
        at = text.rfind("\n", 0, at) + 1
    return text[:at] + chance.choice(DEBUG) + text[at:]


def tag_all(chance: random.Random, text: str, other: str) -> str:
    tag = chance.choice(TAGS)
    return "".join(tag + line for line in text.splitlines(keepends=True))


def tag_some(chance: random.Random, text: str, other: str) -> str:
    return "".join(chance.choice(["", *TAGS]) + line for line in text.splitlines(keepends=True))


def carriage_returns(chance: random.Random, text: str, other: str) -> str:
    return text.replace("\n", chance.choice(["\r\n", "\r", "\r\r\n", "\n\n"]))


def number(chance: random.Random, text: str, other: str) -> str:
    places = list(_NUMBER.finditer(text))
    if not places:
        return text + chance.choice(NUMBERS)
    place = chance.choice(places)
    return text[: place.start()] + chance.choice(NUMBERS) + text[place.end() :]


def all_numbers(chance: random.Random, text: str, other: str) -> str:
    return _NUMBER.sub(lambda match: chance.choice([match.group(), chance.choice(NUMBERS)]), text[:20_000])


def shuffle_lines(chance: random.Random, text: str, other: str) -> str:
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    at, to = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[at], lines[to] = lines[to], lines[at]
    del lines[chance.randrange(len(lines))]
    return "".join(lines)


def duplicate(chance: random.Random, text: str, other: str) -> str:
    lines = text.splitlines(keepends=True) or [""]
    at = chance.randrange(len(lines))
    return "".join([*lines[: at + 1], *lines[at : at + chance.choice([1, 3, 50])], *lines[at + 1 :]])


def append(chance: random.Random, text: str, other: str) -> str:
    return text + chance.choice([text, other])


def interleave(chance: random.Random, text: str, other: str) -> str:
    """Line by line, or in blocks as pipes deliver them."""
    queues = [text.splitlines(keepends=True), chance.choice([text, other]).splitlines(keepends=True)]
    if chance.random() < 0.4:
        queues = [[part[i : i + 511] for i in range(0, len(part), 511)] for part in ("".join(q) for q in queues)]
    mixed: list[str] = []
    while any(queues):
        mixed.append(chance.choice([queue for queue in queues if queue]).pop(0))
    return "".join(mixed)


def blanks(chance: random.Random, text: str, other: str) -> str:
    return re.sub(chance.choice([r" +", r"\t+", r"[ \t]+", r"\n"]), chance.choice([" ", "\t", "", "  "]), text)


def long_line(chance: random.Random, text: str, other: str) -> str:
    at = chance.randrange(len(text) + 1)
    part = chance.choice(
        ["1", " ", "1 ", "a", "[", "{", '"', "\\", "\t", "-", "[0] ", "<a>", ": ", ODD[3], text[at : at + 9]]
    )
    return text[:at] + part * (70_000 // max(len(part), 1)) + text[at:]


MUTATIONS: t.Sequence[t.Callable[[random.Random, str, str], str]] = (
    *(truncate, behead, cut_out, odd_character, flip, debug_line, tag_all, tag_some, carriage_returns, number),
    *(all_numbers, shuffle_lines, duplicate, append, interleave, blanks, long_line),
)


def damaged(texts: t.Sequence[str], others: t.Sequence[str]) -> st.SearchStrategy[str]:
    """Return a strategy: one of the texts after up to six accidents; sometimes it is another program's."""
    bases = st.one_of(st.sampled_from(list(texts) or [""]), st.sampled_from(list(others) or [""]), st.text())
    mostly = st.sampled_from(list(texts)) if texts else bases
    accidents = st.lists(st.sampled_from(MUTATIONS), max_size=6)

    def build(base: str, other: str, mutations: list[t.Any], seed: int) -> str:
        chance = random.Random(seed)
        for mutation in mutations:
            base = mutation(chance, base, other)[:300_000]
        return base

    return st.builds(build, st.one_of(mostly, mostly, bases), bases, accidents, st.integers(0, 1 << 32))
