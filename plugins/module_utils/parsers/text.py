# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clean lines and numbers out of logs that several programs wrote together."""

from __future__ import annotations

import math
import re
import typing as t
from pathlib import Path

Source = t.Union[str, t.Iterable[str]]

LONGEST = 65536
_CHUNK = 1 << 18
_WIDEST = 64

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?")
_SRUN = re.compile(r"[ \t]*\d{1,6}:(?: |$)")
# Open MPI 4 writes [1,0]<stdout>:, Open MPI 5 [prterun-host-17@1,0]<stdout>: with a blank.
_OPEN_MPI = re.compile(r"\[[^\s\[\]<>,]{0,200},\d{1,7}\]<std(?:out|err|diag)>:")
# kubectl logs --prefix; RFC 3339 as of --timestamps, and as `ts` and journalctl write it.
_PREFIX = re.compile(
    r"(?P<pod>\[pod/[^\s\]]{1,500}\](?: |$))"
    r"|(?P<date>\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?(?: |$)"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: [\w.-]{1,253} [\w./-]{1,100}\[\d{1,9}\]:)?(?: |$))",
    re.ASCII,
)
_OF_NCCL = re.compile(r" NCCL (?:INFO|WARN|TRACE|ERROR) ")
_MOST_PREFIXES = 4
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_HYDRA = re.compile(r"[ \t]*(\[\d{1,6}\] )")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_QUANTITY = re.compile(r"\s*(" + _NUMBER.pattern + r")\s*([^\d\s].*)?", re.ASCII | re.DOTALL)


def opened(path: str | Path) -> t.TextIO:
    """Open a log whatever bytes are in it."""
    return Path(path).open(encoding="utf-8", errors="replace")


class Tail:
    """How a text ends: ``cut`` is set before a last line is yielded that has no line end, so may lack its own end."""

    cut = False


class Writers:
    """Who wrote the lines: the hosts that pdsh and clush put before them, and the ranks that srun -l and mpirun do.

    ``mixed`` says which hosts alternate. ``copies`` says which ranks do that each began the program for itself: with
    MPI one rank prints for all.
    """

    def __init__(self) -> None:
        self._seen: dict[str, None] = {}
        self._last = ""
        self._began: set[str] = set()
        self._rank = ""
        self.mixed = ""
        self.copies = ""

    def ranked(self, rank: str, line: str, mark: t.Pattern[str]) -> None:
        """Note the rank whose tag a line had; only ranks that printed what begins the program count."""
        if rank not in self._began:
            if not mark.match(line):
                return
            self._began.add(rank)
        elif self._rank != rank:
            self.copies = f"{self._rank.strip()} and {rank.strip()}"
        self._rank = rank

    def line(self, line: str, mark: t.Pattern[str]) -> str:
        """Return a line without its host. A name is one only after it stood before a line that nothing else can be."""
        name, colon, rest = line.partition(":")
        if not colon or (name not in self._seen and not (_HOST.fullmatch(name) and mark.match(rest.lstrip(" \t")))):
            return line
        if name in self._seen and name != self._last:
            self.mixed = f"{self._last}, {name}"
        self._seen[name], self._last = None, name
        return rest.strip(" \t")


def program_lines(source: Source, mark: t.Pattern[str], writers: Writers, tail: Tail | None = None) -> t.Iterator[str]:
    """Yield the lines of a program, too, without the dates, pods and hosts that a cluster puts before them.

    ``mark`` is how a line begins that only this program prints. NCCL's own dates stay.
    """
    for tag, tagged in _tagged_lines(source, tail):
        rank, bare = _bare(tag, tagged.strip(" \t\0"))
        line = writers.line(bare, mark)
        if rank:
            writers.ranked(rank, line, mark)
        yield line


def _bare(tag: str, line: str) -> tuple[str, str]:
    """Return the rank's tag and the line without pods and dates; the tag may stand behind those, too."""
    for dummy in range(_MOST_PREFIXES):
        head = line[:1]
        prefix = _PREFIX.match(line) if head == "[" or head.isdigit() or head.isupper() else None
        if not prefix or (prefix.lastgroup == "date" and _OF_NCCL.search(line)):
            return tag, line
        inner, line = _untagged(line[prefix.end() :])
        tag, line = inner or tag, line.strip(" \t")
    return tag, line


def lines(source: Source, tail: Tail | None = None) -> t.Iterator[str]:
    """Yield the lines without rank tags, ANSI codes, carriage returns and the blanks around them."""
    for line in raw_lines(source, tail):
        yield line.strip(" \t\0")


def raw_lines(source: Source, tail: Tail | None = None) -> t.Iterator[str]:
    """Yield the lines like `lines`, but with their blanks: for trees by indentation and tables by tabs.

    Holds one line at a time; of a line that is longer than ``LONGEST`` only the beginning is kept.
    """
    for dummy, line in _tagged_lines(source, tail):
        yield line


def _tagged_lines(source: Source, tail: Tail | None) -> t.Iterator[tuple[str, str]]:
    """Yield the tag of the rank, empty where there is none, and the line behind it."""
    for line in _split(pieces(source), tail or Tail()):
        if "\x1b" in line:
            line = _ANSI.sub("", line)
        if "]<std" in line:
            yield from _by_rank(line)
            continue
        head = line.lstrip(" \t")[:1]
        yield _untagged(line) if head == "[" or head.isdigit() else ("", line)


def _untagged(line: str) -> tuple[str, str]:
    srun = _SRUN.match(line)
    if srun:
        return srun.group().strip(" \t:"), line[srun.end() :]
    hydra = _HYDRA.match(line)
    if not hydra:
        return "", line
    # Each write has its tag; but NCCL writes the number of a device as [0], too.
    rest = line[hydra.end() :]
    return ("", rest) if " NCCL " in rest else (hydra.group(1), rest.replace(hydra.group(1), ""))


def _by_rank(line: str) -> t.Sequence[tuple[str, str]]:
    """A tag in the middle of a line is the same rank's next write, or another rank's: then a line of its own."""
    srun = _SRUN.match(line)
    if srun:
        line = line[srun.end() :]
    first = _OPEN_MPI.match(line)
    if first and line.find("]<std", first.end()) < 0:
        return ((_rank(first.group()), _behind(first.group(), line[first.end() :])),)
    tags = _OPEN_MPI.findall(line)
    if not tags:
        return (_untagged(line),)
    head, *parts = _OPEN_MPI.split(line)
    pieces, last = ([("", head)] if head.strip() else []), ""
    for tag, part in zip(tags, parts):
        if tag == last:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + part)
        else:
            pieces.append((_rank(tag), _behind(tag, part)))
        last = tag
    return pieces


def _rank(tag: str) -> str:
    """Return the rank of a tag of Open MPI, which is the same for what it writes to both of its outputs."""
    return tag.partition("<")[0]


def _behind(tag: str, text: str) -> str:
    """Open MPI 5 sets a blank behind its tag, which must not count as indentation."""
    return text[1:] if "@" in tag and text[:1] == " " else text


def pieces(source: Source) -> t.Iterator[str]:
    """Yield text in pieces; whatever is not a file ends a line with each piece."""
    if isinstance(source, str):
        for begin in range(0, len(source), _CHUNK):
            yield source[begin : begin + _CHUNK]
        return
    read = getattr(source, "read", None)
    if read is None:
        for item in source:
            for begin in range(0, len(item), _CHUNK):
                yield item[begin : begin + _CHUNK]
            if not item.endswith(("\n", "\r")):
                yield "\n"
        return
    piece = read(_CHUNK)
    while piece:
        yield piece
        piece = read(_CHUNK)


def _split(parts: t.Iterable[str], tail: Tail) -> t.Iterator[str]:
    """Split at LF, CR LF and CR, as a text file would; never by str.splitlines, which splits at form feeds, too."""
    kept: list[str] = []
    size = 0
    half = False
    for piece in parts:
        if half and piece[:1] == "\n":
            piece = piece[1:]
        half = piece[-1:] == "\r"
        if "\r" in piece:
            piece = piece.replace("\r\n", "\n").replace("\r", "\n")
        head, newline, rest = piece.partition("\n")
        if size < LONGEST:
            kept.append(head)
            size += len(head)
        if not newline:
            continue
        yield "".join(kept)[:LONGEST]
        full = rest.split("\n")
        last = full.pop()
        for line in full:
            yield line if len(line) <= LONGEST else line[:LONGEST]
        kept, size = [last], len(last)
    if size:
        tail.cut = True
        yield "".join(kept)[:LONGEST]


def number(text: str) -> int | float | None:
    """Return a plain finite number; None for everything else, such as ``inf``, ``nan``, ``N/A`` and ``ERR!``."""
    text = text.strip()
    if len(text) > _WIDEST or not _NUMBER.fullmatch(text):
        return None
    # JSON readers other than Python's keep integers of 64 bits at most.
    if len(text) <= 18 and text.lstrip("+-").isdigit():
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else None


def quantity(text: str) -> tuple[float | None, str]:
    """Split ``67.03 W`` or ``16x`` into a number and its unit; what is no number gives None and no unit."""
    match = _QUANTITY.fullmatch(text)
    value = number(match.group(1)) if match else None
    if match is None or value is None:
        return None, ""
    return float(value), (match.group(2) or "").strip()
