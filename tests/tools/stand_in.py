# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that stand in for tools, in ``tests/stand_ins``, put where a test's machine has them."""

from __future__ import annotations

import shlex
import sys
import typing as t
from pathlib import Path

STAND_INS = Path(__file__).resolve().parents[1] / "stand_ins"


def program(source: str, options: str = "", **values: t.Any) -> str:
    """Return the text of a stand-in.

    What it is to say it finds in files near itself; one of a shell also in values, which it has as variables.
    """
    text = (STAND_INS / source).read_text(encoding="utf-8")
    if source.endswith(".py"):
        if values:
            raise ValueError(f"{source} is no shell's, so it can be given no values")
        return f"#!{sys.executable}{options}\n{text}"
    first, rest = text.split("\n", 1)
    given = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())
    return f"{first}\n{given}{rest}"


def stand_in(path: Path, source: str, options: str = "", **values: t.Any) -> Path:
    """Put a stand-in at a path, in place of a program that is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(program(source, options, **values), encoding="utf-8")
    path.chmod(0o755)
    return path


def answer(path: Path, out: str = "", **values: t.Any) -> Path:
    """Put a program at a path that prints a text, and beyond it does what the values of answer.sh say."""
    return stand_in(path, "answer.sh", out=out, **values)


def instead(path: Path, *command: str | Path, **variables: str) -> Path:
    """Put a program at a path that runs a command in its place, with variables of the environment."""
    words = ["env", *(f"{name}={value}" for name, value in variables.items())] if variables else []
    return stand_in(path, "instead.sh", command=shlex.join([*words, *map(str, command)]))
