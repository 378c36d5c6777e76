# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reconciler's configuration file, and the report that a node leaves in the mailbox."""

from __future__ import annotations

import json
import math
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import CLASSES, VERDICTS, Json, finite

# The reconciler's configuration file, checked. No I/O but the reading.


SCHEMA = 1
DEFAULT_CONFIG = "/etc/hpcai/reconcile.json"
_KEYS = ("schema", "mailbox", "state_dir", "max_share", "max_leaf", "latch_days", "stale", "window", "dry_run")


class DrainError(ValueError):
    """No pass is possible; the text is fit for the user."""


class DrainSettings(t.NamedTuple):
    """How much may be drained in one go, and what counts as news."""

    mailbox: str
    state_dir: str = "/var/lib/hpcai/reconcile"
    max_share: float = 0.05  # of the cluster's nodes, in one go
    max_leaf: int = 3  # nodes of one leaf, in one go
    latch_days: float = 30.0
    stale: float = 900.0  # seconds after which a node's report says nothing about now
    window: float = 3600.0  # seconds that make one go; else 5 % could leave every minute
    dry_run: bool = False


def load(path: str) -> DrainSettings:
    """Read the configuration file of the reconciler."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise DrainError(f"configuration {path} cannot be read: {exc}") from exc
    try:
        return settings(document)
    except DrainError as exc:
        raise DrainError(f"configuration {path}: {exc}") from exc


def settings(document: object) -> DrainSettings:
    """Return a checked configuration; an unknown key may be a mistyped limit, so it is refused."""
    if not isinstance(document, dict):
        raise DrainError(f"an object is needed, this is {type(document).__name__}")
    unknown = sorted(set(document) - set(_KEYS))
    if unknown:
        raise DrainError(f"unknown keys {', '.join(unknown)}; known are {', '.join(_KEYS)}")
    if document.get("schema") != SCHEMA:
        raise DrainError(f"schema is {document.get('schema')!r}, this program reads {SCHEMA}")
    checked = DrainSettings(**{"mailbox": "", **{key: value for key, value in document.items() if key != "schema"}})
    for key in ("mailbox", "state_dir"):
        path = getattr(checked, key)
        if not isinstance(path, str) or not path.startswith("/"):
            raise DrainError(f"{key} is {path!r}, an absolute path is needed")
    if not isinstance(checked.dry_run, bool):
        raise DrainError(f"dry_run is {checked.dry_run!r}, true or false is needed")
    _numbers(checked)
    return checked


def _numbers(checked: DrainSettings) -> None:
    if isinstance(checked.max_leaf, bool) or not isinstance(checked.max_leaf, int) or checked.max_leaf < 1:
        raise DrainError(f"max_leaf is {checked.max_leaf!r}, a whole number from 1 is needed")
    for key, least, most in (("max_share", 0, 1), ("latch_days", 0, 3650), ("stale", 60, 86400), ("window", 0, 86400)):
        value = getattr(checked, key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise DrainError(f"{key} is {value!r}, a number is needed")
        if not least <= value <= most:
            raise DrainError(f"{key} is {value:g}, {least} to {most} is needed")


# The report of one node in the mailbox. No I/O.


_CHECK = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MAX_RECORDS = 2000


class Report(t.NamedTuple):
    """A node's file in the mailbox; ``written`` is of the file system's clock, ``time`` of the node's."""

    node: str
    written: float
    time: float = 0.0
    host: str = ""  # the physical host, if the node knows it
    boot_id: str = ""
    records: t.Sequence[Json] = ()
    broken: str = ""  # why (some of) it cannot be read


def read(node: str, text: str, written: float) -> Report:
    """Read a node's file; ``node`` is the name of the file."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as exc:
        return Report(node, written, broken=f"is not JSON: {str(exc)[:100]}")
    if not isinstance(document, dict):
        return Report(node, written, broken="is not an object")
    if document.get("schema") != 1:
        return Report(node, written, broken=f"has schema {document.get('schema')!r:.40}, 1 is needed")
    if document.get("node") != node:
        return Report(node, written, broken=f"is of {document.get('node')!r:.80}")
    moment, listed = finite(document.get("time")), document.get("records")
    if moment is None or not isinstance(listed, list) or len(listed) > _MAX_RECORDS:
        return Report(node, written, broken=f"lacks a time or at most {_MAX_RECORDS} records")
    records = [record for record in listed if _complete(record)]
    lost = len(listed) - len(records)
    problem = document.get("problem")
    problem = f"says: {problem[:200]}" if isinstance(problem, str) and problem else ""
    host = document.get("physical_host")
    return Report(
        node,
        written,
        moment,
        host if isinstance(host, str) and _HOST.fullmatch(host) else "",
        str(document.get("boot_id") or "")[:64],
        records,
        f"has {lost} incomplete records" if lost else problem,
    )


def _complete(record: object) -> bool:
    """Say whether a record has all that a decision needs, in its form."""
    if not isinstance(record, dict):
        return False
    check, context = record.get("check"), record.get("context")
    return (
        isinstance(check, str)
        and bool(_CHECK.fullmatch(check))
        and isinstance(record.get("verdict"), str)
        and record["verdict"] in VERDICTS
        and (record.get("class") is None or (isinstance(record["class"], str) and record["class"] in CLASSES))
        and isinstance(record.get("reason"), str)
        and finite(record.get("time")) is not None
        and (context is None or isinstance(context, dict))
    )
