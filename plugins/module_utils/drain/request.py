# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the reconciler of drains is told: its configuration file, checked. No I/O but the reading; private."""

from __future__ import annotations

import json
import math
import typing as t
from pathlib import Path

SCHEMA = 1
DEFAULT_CONFIG = "/etc/hpcai/reconcile.json"
_KEYS = ("schema", "mailbox", "state_dir", "max_share", "max_leaf", "latch_days", "stale", "window", "dry_run")


class DrainError(ValueError):
    """No pass is possible; the text is fit for the user."""


class Settings(t.NamedTuple):
    """How much may be drained in one go, and what counts as news."""

    mailbox: str
    state_dir: str = "/var/lib/hpcai/reconcile"
    max_share: float = 0.05  # of the cluster's nodes, in one go
    max_leaf: int = 3  # nodes of one leaf, in one go
    latch_days: float = 30.0
    stale: float = 900.0  # seconds after which a node's word says nothing about now
    window: float = 3600.0  # seconds that make one go; else 5 % could leave every minute
    dry_run: bool = False


def load(path: str) -> Settings:
    """Read the configuration file of the reconciler."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise DrainError(f"configuration {path} cannot be read: {exc}") from exc
    try:
        return settings(document)
    except DrainError as exc:
        raise DrainError(f"configuration {path}: {exc}") from exc


def settings(document: object) -> Settings:
    """Check a configuration; what is unknown may be a limit with a typing error, so it is refused."""
    if not isinstance(document, dict):
        raise DrainError(f"an object is needed, this is {type(document).__name__}")
    unknown = sorted(set(document) - set(_KEYS))
    if unknown:
        raise DrainError(f"unknown keys {', '.join(unknown)}; known are {', '.join(_KEYS)}")
    if document.get("schema") != SCHEMA:
        raise DrainError(f"schema is {document.get('schema')!r}, this program reads {SCHEMA}")
    found = Settings(**{"mailbox": "", **{key: value for key, value in document.items() if key != "schema"}})
    for key in ("mailbox", "state_dir"):
        path = getattr(found, key)
        if not isinstance(path, str) or not path.startswith("/"):
            raise DrainError(f"{key} is {path!r}, an absolute path is needed")
    if not isinstance(found.dry_run, bool):
        raise DrainError(f"dry_run is {found.dry_run!r}, true or false is needed")
    _numbers(found)
    return found


def _numbers(found: Settings) -> None:
    if isinstance(found.max_leaf, bool) or not isinstance(found.max_leaf, int) or found.max_leaf < 1:
        raise DrainError(f"max_leaf is {found.max_leaf!r}, a whole number from 1 is needed")
    for key, least, most in (("max_share", 0, 1), ("latch_days", 0, 3650), ("stale", 60, 86400), ("window", 0, 86400)):
        value = getattr(found, key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise DrainError(f"{key} is {value!r}, a number is needed")
        if not least <= value <= most:
            raise DrainError(f"{key} is {value:g}, {least} to {most} is needed")
