# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one node says of itself in the mailbox. No I/O; private.

The text comes from a shared directory: whatever cannot be read is said to be so, and never drains a node.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import CLASSES, VERDICTS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json, finite

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
