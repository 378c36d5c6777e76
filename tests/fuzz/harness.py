# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold for every parser of the collection, whatever text it is given.

Parsers are found, not listed: each public function ``parse*`` of a public module in ``module_utils/parsers``. The
texts to start from are the fixtures in the directory whose name the module's name begins with.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import io
import itertools
import json
import pkgutil
import sys
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import parsers
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi import machines

FIXTURES = Path(__file__).parents[1] / "unit" / "fixtures"
LARGEST_FIXTURE = 200_000
# Nothing in these outputs tells the last line from the others.
ENDLESS = ("nvbandwidth.parse", "nvidia_smi.parse_query", "nvidia_smi.parse_csv", "nvidia_smi.parse_nvlink")
REMARKS = ("notes", "messages", "warnings")
# What these vouch for are words, Pass and Healthy, and no numbers.
VERBAL = ("DcgmDiagRun", "DcgmHealthReport")


class Parser(t.NamedTuple):
    """One function with the texts that it was made for."""

    name: str
    call: t.Callable[[t.Any], t.Any]
    texts: t.Sequence[str]

    def __repr__(self) -> str:
        return self.name


def discover() -> list[Parser]:
    """Return all parsers; a function that several modules offer is one parser."""
    found: dict[t.Callable[[t.Any], t.Any], Parser] = {}
    for info in pkgutil.iter_modules(parsers.__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{parsers.__name__}.{info.name}")
        for name, call in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("parse") and call not in found:
                found[call] = Parser(f"{info.name}.{name}", call, texts_of(info.name))
    return list(found.values())


def texts_of(module: str) -> list[str]:
    """Return the fixtures of a module: those of nvidia_smi serve nvidia_smi_topo, too."""
    folders = [folder for folder in FIXTURES.iterdir() if folder.is_dir() and module.startswith(folder.name)]
    files = sorted(path for folder in folders for path in folder.iterdir() if path.suffix in (".txt", ".json", ".xml"))
    texts = [path.read_text(encoding="utf-8", errors="replace")[:LARGEST_FIXTURE] for path in files]
    return [*texts, *(nvidia_smi_texts() if module.startswith("nvidia_smi") else [])]


def nvidia_smi_texts() -> list[str]:
    """Its tests make their outputs from descriptions of machines."""
    card, ids = machines.A100_R535, machines.bus_ids((1, 2))
    rows = "".join(f"{index}, {card.name}, {bus_id}, 1410 MHz, [N/A], 31\n" for index, bus_id in enumerate(ids))
    return [
        *(machines.document(one, ids) for one in machines.CARDS),
        machines.lost_line(1, ids[1]) + machines.document(card, ids, lost=[1]),
        machines.matrix({}, [("24-47", "1", "N/A"), ("0-23", "0", "N/A")], ["mlx5_ib0", "mlx5_ib1"]),
        machines.matrix({}, [("0-71", "0,3-9", "2"), ("72-143", "1,19-25", "18")], ["n0"], renamed=True),
        machines.nvlink(card, 2, 12, down=[(1, 3)]),
        f"index, name, pci.bus_id, clocks.max.graphics [MHz], memory.total [MiB], temperature.gpu\n{rows}",
    ]


def plain(result: t.Any) -> t.Any:
    """Return a result as JSON would have it."""
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        return dataclasses.asdict(result)
    return [plain(item) for item in result] if isinstance(result, (list, tuple)) else result


def good(result: t.Any) -> bool:
    """Say whether a parser vouches for what it read; one that cannot say so never does."""
    return bool(getattr(result, "ok", False))


def measured(data: t.Any) -> bool:
    """Say whether a result holds a number, or a text with one."""
    if isinstance(data, dict):
        return any(measured(item) for item in data.values())
    if isinstance(data, (list, tuple)):
        return any(measured(item) for item in data)
    return any(letter.isdigit() for letter in str(data)) and not isinstance(data, bool)


def check(parser: Parser, text: str) -> t.Any:
    """Parse a text in two ways and raise AssertionError for what may never be; returns the result."""
    result = parser.call(text)
    data = plain(result)
    said = json.dumps(data, allow_nan=False, sort_keys=True)
    again = json.dumps(plain(parser.call(io.StringIO(text, newline=""))), allow_nan=False, sort_keys=True)
    assert again == said, "a file gives another result than its text"
    if good(result):
        vouched(result)
    return result


def vouched(result: t.Any) -> None:
    """A log that is ok has runs, each of them complete, with numbers and without a cause."""
    assert getattr(result, "cause", None) is None, "ok, and there is a cause"
    runs = getattr(result, "runs", None)
    assert runs is None or runs, "ok, and there is no run"
    for run in runs or [result]:
        assert getattr(run, "ok", True), "ok, and a run is not"
        assert getattr(run, "complete", True), "ok, and a run is not complete"
        assert getattr(run, "cause", None) is None, "ok, and a run has a cause"
        assert type(run).__name__ in VERBAL or measured(plain(run)), "ok, and there is no number"


def without_words(data: t.Any) -> t.Any:
    """Take out what may be missing at the end of a good log: remarks."""
    if isinstance(data, dict):
        return {key: without_words(value) for key, value in data.items() if key not in REMARKS}
    return [without_words(item) for item in data] if isinstance(data, (list, tuple)) else data


def begins(part: t.Any, whole: t.Any) -> bool:
    """Say whether a result has nothing that the other has not: shorter lists and texts, but the same numbers."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and begins(value, whole[key]) for key, value in part.items())
    if isinstance(part, (list, tuple)) and isinstance(whole, (list, tuple)):
        return len(part) <= len(whole) and all(begins(one, other) for one, other in zip(part, whole))
    if isinstance(part, str) and isinstance(whole, str):
        return whole.startswith(part)
    return bool(part == whole)


def check_cut(parser: Parser, text: str, end: int) -> None:
    """A good log that is cut is not good, unless whole runs remain; where a log has no end, no number may change."""
    whole, part = parser.call(text), parser.call(text[:end])
    if not good(part):
        return
    one, other = without_words(plain(part)), without_words(plain(whole))
    assert begins(one, other), "what remains of a good log says something else"
    if parser.name not in ENDLESS and isinstance(one, dict):
        runs = one.get("runs", [])
        assert runs == other.get("runs", [])[: len(runs)], "the beginning of a good run is as good as the run"


DRESSES: dict[str, t.Callable[[str], str]] = {
    "Open MPI 4": lambda line: f"[1,0]<stdout>:{line}",
    "Open MPI 5": lambda line: f"[prterun-node-1-2711@1,0]<stdout>: {line}",
    "srun -l": lambda line: f" 0: {line}",
    "Intel MPI": lambda line: f"[0] {line}",
    "a terminal": lambda line: f"\x1b[0m{line}\x1b[K\r",
}


def check_dressed(parser: Parser, text: str) -> None:
    """Launchers and terminals write around the lines; that changes nothing. A text has one launcher at most."""
    if "]<std" in text:
        return
    naked = plain(parser.call(text))
    for name, dress in DRESSES.items():
        worn = "".join(f"{dress(line)}\n" for line in text.split("\n"))
        assert plain(parser.call(worn)) == naked, f"{name} changes the result"


def steps(parser: Parser, text: str) -> int:
    """Count the lines of Python that the parsers execute for a text: the same number on every machine."""
    home = str(Path(inspect.getsourcefile(parsers) or "").parent)
    counter = itertools.count()

    def trace(frame: t.Any, event: str, dummy: t.Any) -> t.Any:
        if event == "call" and not frame.f_code.co_filename.startswith(home):
            return None
        if event == "line":
            next(counter)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        parser.call(text)
    finally:
        sys.settrace(before)
    return next(counter)
