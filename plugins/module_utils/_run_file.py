# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file C(run.json) on disk: merged by entry, locked against another run, whole at every moment. Private.

It is of one cluster. When another cluster is next in the same directory, the record of the first is put aside as
C(run-NAME.json), and goes on from there when its turn comes again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import typing as t
from pathlib import Path
from urllib.parse import quote

SCHEMA = 1
JsonDict = t.Dict[str, t.Any]


class RecordError(ValueError):
    """The run record cannot be read; the text is fit for the user."""


def merge(document: JsonDict, own: JsonDict, keep: int) -> JsonDict:
    """Put what this process knows into the record; newer entries replace older ones of the same name."""
    merged: JsonDict = {"schema": SCHEMA, "cluster": own.get("cluster") or document.get("cluster")}
    merged["sku"] = own.get("sku") or document.get("sku")
    for name, key in ROWS.items():
        merged[name] = list({key(row): row for row in [*_rows(document, name), *_rows(own, name)]}.values())
    # Another machine's entries may come later than they were made.
    merged["stages"].sort(key=lambda stage: str(stage.get("start") or ""))
    runs = list(dict.fromkeys(stage.get("run") for stage in merged["stages"]))[-keep:]
    for name in ROWS:
        merged[name] = [row for row in merged[name] if row.get("run") in runs]
    before = document.get("nodes")
    merged["nodes"] = {**(before if isinstance(before, dict) else {}), **(own.get("nodes") or {})}
    return merged


def load(path: Path, cluster: str | None = None) -> JsonDict:
    """Read the record, of this cluster if one is named; an absent one is empty."""
    document = _read(path)
    return _read(_aside(path, cluster)) if cluster and _is_of_another(document, cluster) else document


def _is_of_another(document: JsonDict, cluster: t.Any) -> bool:
    return bool(cluster and document.get("cluster") and document["cluster"] != cluster)


def _aside(path: Path, cluster: t.Any) -> Path:
    return path.with_name(f"{path.stem}-{quote(str(cluster), safe='')}{path.suffix}")


def _read(path: Path) -> JsonDict:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except ValueError as exc:
        raise RecordError(f"{path} is not JSON: {exc}") from exc
    return parse(text, str(path))


def parse(text: str, source: str) -> JsonDict:
    """Read the text of a record, which comes from this source."""
    try:
        document = json.loads(text)
    except ValueError as exc:
        raise RecordError(f"{source} is not JSON: {exc}") from exc
    if not isinstance(document, dict) or document.get("schema", SCHEMA) != SCHEMA:
        raise RecordError(f"{source} is not a run record of schema {SCHEMA}")
    return document


def store(path: Path, own: JsonDict, keep: int) -> JsonDict:
    """Merge into the file on disk, locked against another run and whole at every moment; return what it holds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        document = _read(path)
        if _is_of_another(document, own.get("cluster")):
            _write(_aside(path, document["cluster"]), _without(document, own))
            document = _read(_aside(path, own["cluster"]))
        merged = merge(document, own, keep)
        _write(path, merged)
    return merged


def _without(document: JsonDict, own: JsonDict) -> JsonDict:
    """Return another cluster's record without what this run wrote into it before it knew its own cluster."""
    theirs = {}
    for name, key in ROWS.items():
        mine = {key(row) for row in _rows(own, name)}
        theirs[name] = [row for row in _rows(document, name) if key(row) not in mine]
    return {**document, **theirs}


def _write(path: Path, document: JsonDict) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        temporary.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _identity(check: JsonDict) -> tuple[t.Any, ...]:
    """Measured again in the same run, a check replaces its former record; another collective is another check."""
    scope, context = check.get("scope"), check.get("context")
    collective = context.get("collective") if isinstance(context, dict) else None
    return check.get("run"), check.get("node"), check.get("check"), json.dumps(scope, sort_keys=True), collective


def _rows(document: JsonDict, name: str) -> list[JsonDict]:
    """Return the rows of a list of the record; what is no row, in a file that somebody changed, is left out."""
    value = document.get(name)
    return [row for row in value if isinstance(row, dict)] if isinstance(value, (list, tuple)) else []


# The lists of a record, and what makes two of their rows the same one.
ROWS: dict[str, t.Callable[[JsonDict], t.Any]] = {
    "stages": lambda stage: (stage.get("run"), stage.get("stage"), stage.get("start")),
    "checks": _identity,
    "training": lambda training: (training.get("run"), training.get("name"), training.get("job_id")),
}
