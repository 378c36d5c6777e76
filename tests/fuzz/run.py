# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fuzz all parsers for a while: python tests/fuzz/run.py --minutes 60 [--parser nccl_tests] [--seed 7].

First the time is taken of texts that make careless regular expressions slow; then damaged logs are read until the
time is over. A text that breaks a rule is made as small as it can be, printed and kept in .build/fuzz/.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import random
import sys
import time
import typing as t
from pathlib import Path

import hypothesis
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / ".build" / "collections"), str(Path(__file__).parent)]

import damage  # noqa: E402
import harness  # noqa: E402

EXAMPLES = 150
# A line is 64 KiB at most for the parsers. Twice the text may cost so much more before it counts as a finding.
TWICE = 3.2
FAST_ENOUGH = 0.05
PATTERNS = (
    *(
        "1",
        " ",
        "\t",
        "a",
        "a ",
        "1 ",
        "1.",
        "-",
        "[",
        "[0] ",
        "0: ",
        "[1,0]<stdout>:",
        "\x1b[",
        "\x1b]0;",
        "{",
        '{"a":',
    ),
    *(
        '"',
        "\\",
        ":",
        ": ",
        "<",
        "<gpu>",
        "|",
        "=",
        "GPU 0: ",
        "Rank 0 ",
        "#",
        "# ",
        "NCCL WARN ",
        "execve(): ",
        "W",
        "/",
    ),
)


class Findings:
    """Keeps what broke a rule."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, name: str, text: str, why: str) -> None:
        self.count += 1
        folder = ROOT / ".build" / "fuzz"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:12]}.txt"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        print(f"FINDING {name}: {why}\n  {len(text)} characters in {path}\n  {text[:300]!r}", flush=True)


def seconds(parser: harness.Parser, text: str) -> float:
    """Return the processor time of the fastest of three readings."""
    best = float("inf")
    for dummy in range(3):
        begin = time.process_time()
        parser.call(text)
        best = min(best, time.process_time() - begin)
    return best


def time_patterns(parser: harness.Parser, findings: Findings) -> int:
    """Double one line, and double the number of lines."""
    heads = ["", *{line[:40] for text in parser.texts[:40] for line in text.splitlines()[:30]}][:60]
    tried = 0
    for pattern in PATTERNS:
        for head in [heads[0], *random.Random(len(pattern)).sample(heads, min(6, len(heads)))]:
            line = head + pattern * (30_000 // len(pattern))
            for once, twice in ((line, head + line + line[len(head) :]), (f"{line}\n" * 4, f"{line}\n" * 8)):
                tried += 1
                first, second = seconds(parser, once), seconds(parser, twice)
                if second > FAST_ENOUGH and second > TWICE * first:
                    findings.add(
                        parser.name, twice, f"{first:.3f} s for {len(once)} characters, {second:.3f} s for twice"
                    )
    return tried


def fuzz(parser: harness.Parser, others: t.Sequence[str], seed: int, findings: Findings) -> collections.Counter[str]:
    """Read some damaged texts, and some good ones that are cut."""
    counts: collections.Counter[str] = collections.Counter()
    settings = hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        verbosity=hypothesis.Verbosity.quiet,
        print_blob=False,
    )
    last = [""]

    @hypothesis.seed(seed)
    @settings
    @hypothesis.given(damage.damaged(parser.texts, others))
    def damaged(text: str) -> None:
        last[0] = text
        counts["texts"] += 1
        counts["characters"] += len(text)
        counts["ok"] += harness.good(harness.check(parser, text))

    whole = [text for text in parser.texts if harness.good(parser.call(text))]

    @hypothesis.seed(seed)
    @settings
    @hypothesis.given(st.data())
    def cut(data: st.DataObject) -> None:
        text = data.draw(st.sampled_from(whole))
        end = data.draw(st.integers(0, len(text)) | st.integers(max(0, len(text) - 200), len(text)))
        last[0] = text[:end]
        counts["cuts"] += 1
        harness.check_cut(parser, text, end)

    for test in (damaged, *([cut] if whole else [])):
        try:
            test()
        except Exception as exc:
            findings.add(parser.name, last[0], f"{type(exc).__name__}: {exc}")
    return counts


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=1)
    options.add_argument("--parser", default="", help="only parsers whose name holds this")
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments = options.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    every = harness.discover()
    chosen = [parser for parser in every if arguments.parser in parser.name]
    others = [text for parser in every for text in parser.texts if len(text) < 20_000]
    findings, totals = Findings(), {parser.name: collections.Counter[str]() for parser in chosen}
    print(f"seed {arguments.seed}: {', '.join(totals)}", flush=True)
    for parser in chosen:
        totals[parser.name]["times"] = time_patterns(parser, findings)
    seed = arguments.seed
    while time.monotonic() < end:
        for parser in chosen:
            totals[parser.name] += fuzz(parser, others, seed, findings)
        seed += 1
    for name, counts in totals.items():
        print(f"{name}: {', '.join(f'{value} {what}' for what, value in counts.items())}")
    print(f"{findings.count} findings in {arguments.minutes:g} minutes")
    return 1 if findings.count else 0


if __name__ == "__main__":
    sys.exit(main())
