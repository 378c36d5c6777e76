# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies of slurmctld's state and of its configuration, and the timeout that keeps silent nodes. Private."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.conf import parse

_TIMEOUT = re.compile(r"^[ \t]*slurmdtimeout[ \t]*=[ \t]*(\d+).*$", re.IGNORECASE | re.MULTILINE)
_OURS = re.compile(r"^SlurmdTimeout=\d+ # upgrade_slurm.yml, before: (\d+|unset), file of (\d+\.\d+)\n", re.MULTILINE)


class StateError(Exception):
    """The state cannot be copied; the text is fit for the user."""


def place(conf: str) -> Path:
    """Where slurmctld keeps its state."""
    return Path(dict(parse(conf).settings).get("statesavelocation", "/var/spool"))


def marks(directory: Path) -> dict[str, str]:
    """Every file below a directory with its SHA-256."""
    files = sorted(path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    found = {}
    for path in files:
        with contextlib.suppress(FileNotFoundError):  # a slurmctld that runs removes files
            found[str(path.relative_to(directory))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def latest(base: Path, target: str) -> dict[str, t.Any]:
    """The newest whole copy that was made for this upgrade."""
    records = (json.loads(path.read_text()) for path in base.glob("state-*.json"))
    mine = [record for record in records if record["target"] == target and Path(record["path"]).is_dir()]
    return max(mine, key=lambda record: record["time"], default={})


def copy(state: Path, config: Path, base: Path, have: str, target: str) -> dict[str, t.Any]:
    """Copy state and configuration aside, compare what was written, and only then give the copy its name."""
    base.mkdir(parents=True, exist_ok=True)
    base.chmod(0o700)
    needed = room(state, base)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    path = base / f"state-{have}-before-{target}-{stamp}"
    aside = base / f"{path.name}.partial"
    for left in base.glob("state-*.partial"):  # a killed run's
        shutil.rmtree(left, ignore_errors=True)
    _copy_tree(state, aside / "state")
    shutil.copytree(config, aside / "etc", symlinks=True)
    found, meant = marks(aside / "state"), marks(state)
    if found != meant:  # slurmctld writes while it runs: what has changed meanwhile is copied as it is now
        shutil.rmtree(aside / "state")
        _copy_tree(state, aside / "state")
        found = marks(aside / "state")
    os.sync()
    aside.rename(path)
    record = {"path": str(path), "have": have, "target": target, "time": time.time(), "marks": found, "bytes": needed}
    note = base / f"{path.name}.json.partial"
    note.write_text(json.dumps(record) + "\n")
    note.rename(base / f"{path.name}.json")
    return record


def room(state: Path, base: Path) -> int:
    """Return the bytes that a copy takes, or refuse where they are not free."""
    needed = _size(state)
    there = next(one for one in (base, *base.parents) if one.exists())
    free = shutil.disk_usage(there).free
    if free < needed * 1.1 + (1 << 20):
        raise StateError(f"{base} has {free / 1e6:.0f} MB free, and a copy of {state} needs {needed / 1e6:.0f} MB")
    return needed


def _size(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _copy_tree(source: Path, target: Path) -> None:
    """Copy, and forgive what a slurmctld that runs has removed meanwhile."""
    try:
        shutil.copytree(source, target)
    except shutil.Error as exc:
        if any(os.path.lexists(where) for where, *dummy in exc.args[0]):
            raise


def raised(text: str, seconds: int, written: float) -> str:
    """slurm.conf with a SlurmdTimeout of at least ``seconds``, which says what it was before."""
    if _OURS.search(text):
        return text
    found = _TIMEOUT.search(text)
    before = found.group(1) if found else "unset"
    if found and (int(found.group(1)) >= seconds or int(found.group(1)) == 0):  # 0 is for ever
        return text
    line = f"SlurmdTimeout={seconds} # upgrade_slurm.yml, before: {before}, file of {written:.6f}"
    if found:
        return text[: found.start()] + line + text[found.end() :]
    return f"{text.rstrip()}\n{line}\n"


def restored(text: str) -> tuple[str, float]:
    """slurm.conf as it was, and when it was written; 0 where nothing is to be undone."""
    found = _OURS.search(text)
    if not found:
        return text, 0.0
    before = "" if found.group(1) == "unset" else f"SlurmdTimeout={found.group(1)}\n"
    return text[: found.start()] + before + text[found.end() :], float(found.group(2))
