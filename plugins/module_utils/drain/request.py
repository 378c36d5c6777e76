# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reconciler's configuration file, and what one node says of itself in the mailbox."""

from __future__ import annotations

import json
import math
import re
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import CLASSES, VERDICTS, Json, finite

# What the reconciler of drains is told: its configuration file, checked. No I/O but the reading; private.


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
    stale: float = 900.0  # seconds after which a node's word says nothing about now
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
    """Check a configuration; what is unknown may be a limit with a typing error, so it is refused."""
    if not isinstance(document, dict):
        raise DrainError(f"an object is needed, this is {type(document).__name__}")
    unknown = sorted(set(document) - set(_KEYS))
    if unknown:
        raise DrainError(f"unknown keys {', '.join(unknown)}; known are {', '.join(_KEYS)}")
    if document.get("schema") != SCHEMA:
        raise DrainError(f"schema is {document.get('schema')!r}, this program reads {SCHEMA}")
    found = DrainSettings(**{"mailbox": "", **{key: value for key, value in document.items() if key != "schema"}})
    for key in ("mailbox", "state_dir"):
        path = getattr(found, key)
        if not isinstance(path, str) or not path.startswith("/"):
            raise DrainError(f"{key} is {path!r}, an absolute path is needed")
    if not isinstance(found.dry_run, bool):
        raise DrainError(f"dry_run is {found.dry_run!r}, true or false is needed")
    _numbers(found)
    return found


def _numbers(found: DrainSettings) -> None:
    if isinstance(found.max_leaf, bool) or not isinstance(found.max_leaf, int) or found.max_leaf < 1:
        raise DrainError(f"max_leaf is {found.max_leaf!r}, a whole number from 1 is needed")
    for key, least, most in (("max_share", 0, 1), ("latch_days", 0, 3650), ("stale", 60, 86400), ("window", 0, 86400)):
        value = getattr(found, key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise DrainError(f"{key} is {value!r}, a number is needed")
        if not least <= value <= most:
            raise DrainError(f"{key} is {value:g}, {least} to {most} is needed")


# What one node says of itself in the mailbox. No I/O; private.


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
    moment, found = finite(document.get("time")), document.get("records")
    if moment is None or not isinstance(found, list) or len(found) > _MAX_RECORDS:
        return Report(node, written, broken=f"lacks a time or at most {_MAX_RECORDS} records")
    records = [item for item in found if _complete(item)]
    lost = len(found) - len(records)
    told = document.get("problem")
    problem = f"says: {told[:200]}" if isinstance(told, str) and told else ""
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


def _complete(item: object) -> bool:
    """A record that lacks what is needed of it here may say anything."""
    if not isinstance(item, dict):
        return False
    check, context = item.get("check"), item.get("context")
    return (
        isinstance(check, str)
        and bool(_CHECK.fullmatch(check))
        and isinstance(item.get("verdict"), str)
        and item["verdict"] in VERDICTS
        and (item.get("class") is None or (isinstance(item["class"], str) and item["class"] in CLASSES))
        and isinstance(item.get("reason"), str)
        and finite(item.get("time")) is not None
        and (context is None or isinstance(context, dict))
    )
