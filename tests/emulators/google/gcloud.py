# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stands in for gcloud: the few commands that the collection gives, strict about their flags and what they refer to.

State, log and faults are files in $GCLOUD_EMULATOR_DIR: state.json; log (one JSON list of words a line); faults.json
(``no_room``: names that are not created; ``quota``: how many instances there may be; ``fail``: words of a command that
fails after its work is done; ``logged_out``).
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
import typing as t
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from commands import COMMANDS, Refused

DIRECTORY = Path(os.environ["GCLOUD_EMULATOR_DIR"])
REPEATED = ("network-interface", "local-ssd")
_WIDE = {"project": True, "format": True, "quiet": False}


def parse(argv: list[str]) -> tuple[str, list[str], dict[str, str]]:
    """Split a command line; an unknown command or flag, or a flag with a wrong shape, ends as gcloud would."""
    words = [word for word in argv if not word.startswith("--")]
    length = next((n for n in range(len(words), 0, -1) if " ".join(words[:n]) in COMMANDS), 0)
    if not length:
        raise SystemExit(f"ERROR: (gcloud) Invalid choice: {' '.join(words)!r}.")
    name = " ".join(words[:length])
    known = {**COMMANDS[name].flags, **_WIDE}
    flags: dict[str, str] = {}
    strange = []
    for word in (word for word in argv if word.startswith("--")):
        flag, equals, value = word[2:].partition("=")
        if flag not in known or bool(equals) != known[flag] or (equals and not value):
            strange.append(word)
        flags[flag] = f"{flags[flag]};{value}" if flag in REPEATED and flag in flags else value
    if strange:
        lines = "".join(f"  {one}\n" for one in strange)
        sys.stderr.write(f"ERROR: (gcloud.{name.replace(' ', '.')}) unrecognized arguments:\n{lines}")
        raise SystemExit(2)
    absent = [flag for flag in COMMANDS[name].needed if flag not in flags]
    if absent or len(words) - length < COMMANDS[name].arguments:
        dotted = name.replace(" ", ".")
        sys.stderr.write(f"ERROR: (gcloud.{dotted}) argument --{absent or 'NAME'}: Must be specified.\n")
        raise SystemExit(2)
    return name, words[length:], flags


def load(name: str) -> dict[str, t.Any]:
    path = DIRECTORY / name
    return t.cast("dict[str, t.Any]", json.loads(path.read_text())) if path.is_file() else {}


def run(argv: list[str]) -> int:
    name, arguments, flags = parse(argv)
    with (DIRECTORY / "log").open("a") as log:
        log.write(json.dumps(argv) + "\n")
    state, faults = load("state.json"), load("faults.json")
    dotted = name.replace(" ", ".")
    if faults.get("logged_out"):
        sys.stderr.write(f"ERROR: (gcloud.{dotted}) You do not currently have an active account selected.\n")
        return 1
    if not re.fullmatch(r"[a-z][a-z0-9-]{4,28}[a-z0-9]", flags.get("project", "")):
        sys.stderr.write(f"ERROR: (gcloud.{dotted}) The required property [project] is not currently set.\n")
        return 1
    try:
        answer = COMMANDS[name].act(state, arguments, flags, faults)
        failed = ""
    except Refused as exc:
        answer, failed = None, str(exc)
    (DIRECTORY / "state.json").write_text(json.dumps(state, indent=1, sort_keys=True))
    if failed or name in faults.get("fail", []):
        sys.stderr.write(f"ERROR: (gcloud.{dotted}) Could not fetch resource:\n - {failed or 'Internal error'}\n")
        return 1
    if answer is not None:
        sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def main() -> int:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with (DIRECTORY / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return run(sys.argv[1:])


if __name__ == "__main__":
    raise SystemExit(main())
