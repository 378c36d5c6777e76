# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file C(run.json) on disk: merged by entry, locked against another run, whole at every moment. Private."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import typing as t
from pathlib import Path

SCHEMA = 1
JsonDict = t.Dict[str, t.Any]


class RecordError(ValueError):
    """The run record cannot be read; the text is fit for the user."""


def merge(document: JsonDict, own: JsonDict, keep: int) -> JsonDict:
    """Put what this process knows into the record; newer entries replace older ones of the same name."""
    keys: dict[str, t.Callable[[JsonDict], t.Any]] = {
        "stages": lambda x: (x.get("run"), x.get("stage"), x.get("start")),
        "checks": _identity,
        "training": lambda x: (x.get("run"), x.get("name"), x.get("job_id")),
    }
    merged: JsonDict = {"schema": SCHEMA, "cluster": own.get("cluster") or document.get("cluster")}
    merged["sku"] = own.get("sku") or document.get("sku")
    for name, key in keys.items():
        rows = [row for row in [*_list(document.get(name)), *_list(own.get(name))] if isinstance(row, dict)]
        merged[name] = list({key(row): row for row in rows}.values())
    # Another machine's entries may come later than they were made.
    merged["stages"].sort(key=lambda stage: str(stage.get("start") or ""))
    runs = list(dict.fromkeys(stage.get("run") for stage in merged["stages"]))[-keep:]
    for name in keys:
        merged[name] = [row for row in merged[name] if row.get("run") in runs]
    before = document.get("nodes")
    merged["nodes"] = {**(before if isinstance(before, dict) else {}), **(own.get("nodes") or {})}
    return merged


def load(path: Path) -> JsonDict:
    """Read the record; an absent one is empty."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except ValueError as exc:
        raise RecordError(f"{path} is not JSON: {exc}") from exc
    return parse(text, str(path))


def parse(text: str, place: str) -> JsonDict:
    """Read the text of a record, which comes from this place."""
    try:
        document = json.loads(text)
    except ValueError as exc:
        raise RecordError(f"{place} is not JSON: {exc}") from exc
    if not isinstance(document, dict) or document.get("schema", SCHEMA) != SCHEMA:
        raise RecordError(f"{place} is not a run record of schema {SCHEMA}")
    return document


def store(path: Path, own: JsonDict, keep: int) -> JsonDict:
    """Merge into the file on disk, locked against another run and whole at every moment; return what it holds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        merged = merge(load(path), own, keep)
        text = json.dumps(merged, indent=1, allow_nan=False) + "\n"
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
    return merged


def _identity(check: JsonDict) -> tuple[t.Any, ...]:
    """Measured again in the same run, a check replaces its former record; another collective is another check."""
    scope, context = check.get("scope"), check.get("context")
    collective = context.get("collective") if isinstance(context, dict) else None
    return check.get("run"), check.get("node"), check.get("check"), json.dumps(scope, sort_keys=True), collective


def _list(value: t.Any) -> list[t.Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
