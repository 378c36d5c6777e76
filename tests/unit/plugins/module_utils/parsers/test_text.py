# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import io
import json
import math
import tracemalloc
import typing as t
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import text


@pytest.mark.parametrize(
    "said, lines",
    [
        ("a\nb\n", ["a", "b"]),
        ("a\r\nb", ["a", "b"]),
        ("a\r\r\nb\n", ["a", "", "b"]),
        ("10%\r50%\rdone\n", ["10%", "50%", "done"]),
        # str.splitlines would break these lines.
        ("a\x0bb\x0cc\x1cd\u2028e\x85f\n", ["a\x0bb\x0cc\x1cd\u2028e\x85f"]),
        ("\n\n", ["", ""]),
        ("", []),
        ("  \tindented \t\n", ["indented"]),
        ("\0\0\0after a hole\n", ["after a hole"]),
        # ANSI
        ("\x1b[4mGPU0\x1b[0m\n", ["GPU0"]),
        ("\x1b[1;31mred\x1b[K\x1b[?25l\n", ["red"]),
        ("\x1b]0;title\x07text\n", ["text"]),
        ("\x1b]0;title\x1b\\text\n", ["text"]),
        ("\x1b(Bx\x1b=y\n", ["xy"]),
        ("ends in one \x1b\n", ["ends in one"]),
        # Open MPI 4 and 5
        ("[1,0]<stdout>:# nThread\n", ["# nThread"]),
        ("[1,12]<stderr>:  x\n", ["x"]),
        ("[prterun-node-1-2711@1,3]<stdout>: # nThread\n", ["# nThread"]),
        ("[1,0]<stdout>:\n", [""]),
        # srun -l
        ("0: text\n12:  text\n 3: text\n0: \n", ["text", "text", "text", ""]),
        ("7:\n", [""]),
        # no tags
        ("12:34:56 began\n", ["12:34:56 began"]),
        ("1000000000: x\n", ["1000000000: x"]),
        ("[2026-03-14 09:26:53] node:1:2 [0] NCCL INFO x\n", ["[2026-03-14 09:26:53] node:1:2 [0] NCCL INFO x"]),
        ("[1,2,3]\n", ["[1,2,3]"]),
        # Intel MPI, MPICH and MVAPICH; NCCL's own [0] stays
        ("[0] text\n[12]  text\n", ["text", "text"]),
        ("[0]     8  [0]     2   float [0]\n", ["8      2   float [0]"]),
        ("[3] node:1:2 [3] NCCL INFO x\n", ["node:1:2 [3] NCCL INFO x"]),
        # several at once
        ("\x1b[0m[1,0]<stdout>:\x1b[1mx\r\n", ["x"]),
        ("0: [1,0]<stdout>:x\n", ["x"]),
    ],
)
def test_lines(said: str, lines: list[str]) -> None:
    assert list(text.lines(said)) == lines


def test_a_rank_goes_on_with_its_line() -> None:
    assert list(text.raw_lines("[1,0]<stdout>:  8  2[1,0]<stdout>:   1.5\n")) == ["  8  2   1.5"]


def test_another_rank_breaks_into_a_line() -> None:
    said = "[1,0]<stdout>:  8  2[1,3]<stdout>:node:1:2 NCCL WARN x\n[1,0]<stdout>:   1.5\n"
    assert list(text.raw_lines(said)) == ["  8  2", "node:1:2 NCCL WARN x", "   1.5"]


def test_indentation_and_tabs_stay() -> None:
    said = "0: \tGPU0\t X \t\n1:     Max : 1410 MHz  \r\n[p@1,0]<stdout>:   deep"
    assert list(text.raw_lines(said)) == ["\tGPU0\t X \t", "    Max : 1410 MHz  ", "  deep"]


SAID = "one\r\ntwo\n\n  three\r" + "x" * 70000 + "\nfour"


class Dribble(io.StringIO):
    """A file that gives few characters at a time, as pipes do."""

    def read(self, size: int | None = -1) -> str:
        return super().read(3)


@pytest.mark.parametrize("source", [SAID, io.StringIO(SAID), Dribble(SAID), SAID.splitlines(keepends=True)])
def test_sources(source: text.Source) -> None:
    assert list(text.lines(source)) == ["one", "two", "", "three", "x" * text.LONGEST, "four"]


def test_items_of_a_list_are_lines(tmp_path: Path) -> None:
    assert list(text.lines(["a", "b\n", "", "c\r\nd"])) == ["a", "b", "", "c", "d"]


def test_a_log_with_any_bytes(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"caf\xe9\n\xff\xfe\x00ok\n")
    with text.opened(tmp_path / "log") as file:
        assert list(text.lines(file)) == ["caf\ufffd", "\ufffd\ufffd\0ok"]


@pytest.mark.parametrize(
    "source, cut",
    [("a\nb", True), ("a\nb\n", False), ("", False), (["a", "b"], False), (io.StringIO("a\nb"), True), ("a\r", False)],
)
def test_tail_tells_whether_the_end_of_a_line_is_missing(source: text.Source, cut: bool) -> None:
    tail = text.Tail()
    seen = [tail.cut for dummy in text.lines(source, tail)]
    assert (tail.cut, any(seen[:-1])) == (cut, False)


def test_memory_does_not_grow_with_the_log() -> None:
    def log(megabytes: int) -> t.Iterator[str]:
        for number in range(megabytes * 10000):
            yield f"node:1:2 [0] NCCL INFO Channel {number:060d}\n"
        yield from ["x" * (1 << 20)] * megabytes

    peaks = []
    for size in (1, 4):
        tracemalloc.start()
        assert sum(1 for dummy in text.lines(log(size))) == size * 10001
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.2 + 100_000


PARTS = [
    "a",
    "1",
    " ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "[1,0]<stdout>:",
    "[1,2]<stdout>:",
    "[p@1,2]<stderr>: ",
    "0: ",
    "[0] ",
    "\x1b[0m",
]


@given(st.lists(st.sampled_from(PARTS), max_size=60), st.integers(1, 4))
def test_pieces_do_not_change_the_lines(parts: list[str], size: int) -> None:
    """Read at once or a few characters at a time, a text has the same lines."""
    whole = "".join(parts)

    class Few(io.StringIO):
        def read(self, dummy: int | None = -1) -> str:
            return super().read(size)

    assert list(text.raw_lines(Few(whole, newline=""))) == list(text.raw_lines(whole))


@pytest.mark.parametrize(
    "said, value",
    [
        ("12", 12),
        (" -1 ", -1),
        ("+3", 3),
        ("1.50", 1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1.2e+07", 1.2e7),
        ("2E-07", 2e-7),
        ("999999999999999999", 999999999999999999),
        ("18446744073709551616", 18446744073709551616.0),
        *[(bad, None) for bad in ("", "inf", "-inf", "nan", "-nan", "N/A", "[N/A]", "ERR!", "1e999", "0x10", "1,5")],
        *[(bad, None) for bad in ("1_000", "\u0661", "12 MHz", "1.2.3", "e5", "-", "1" * 5000, "[Unknown Error]")],
    ],
)
def test_number(said: str, value: float | None) -> None:
    found = text.number(said)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "said, value",
    [
        ("1410 MHz", (1410.0, "MHz")),
        ("16x", (16.0, "x")),
        ("67.03 W", (67.03, "W")),
        (" 41 C\n", (41.0, "C")),
        ("40960 MiB", (40960.0, "MiB")),
        ("25.781 GB/s", (25.781, "GB/s")),
        ("3", (3.0, "")),
        ("0 %", (0.0, "%")),
        *[(bad, (None, "")) for bad in ("N/A", "[N/A]", "Unknown Error", "", "MHz", "1e999 W", "1 2x", "inf W")],
    ],
)
def test_quantity(said: str, value: tuple[float | None, str]) -> None:
    assert text.quantity(said) == value


@given(st.text(alphabet="0123456789.eE+-xnaif \u0663\u00b2", max_size=80))
def test_numbers_are_fit_for_json(said: str) -> None:
    for value in (text.number(said), text.quantity(said)[0]):
        assert value is None or (math.isfinite(value) and json.loads(json.dumps(value, allow_nan=False)) == value)
