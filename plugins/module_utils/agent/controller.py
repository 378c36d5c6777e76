# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller left in the mailbox for the nodes: its time and a munge credential. Private, stdlib only.

Whoever can read a credential may be root, or nobody at the file server: everything happens as the mailbox's owner.
"""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import finite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import probe, reach
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.access import BrokenError

NAME = "controller.json"
STALE = 900.0
_PROBE = 4096


class Letter(t.NamedTuple):
    """The file. ``time`` is the controller's clock, ``written`` the file server's at the same moment.

    ``age`` is told by the file server alone, so a wrong clock of this node does not make it wrong.
    """

    time: float
    credential: str
    written: float
    age: float


class Share(t.NamedTuple):
    """What the shared directory did with our own file, and the letter or why there is none."""

    probe: probe.Result
    letter: Letter | None
    problem: str


def share(context: Context) -> Share:
    """Write a probe and read the letter, once for all checks of a suite."""
    return t.cast(Share, context.once("share", lambda: _share(context)))


def _share(context: Context) -> Share:
    config = context.config
    folder = Path(config.mailbox)
    with reach.acting_as(config.mailbox_user):
        if not folder.is_dir():
            raise BrokenError(f"{folder} is not there: is {config.shared_dir or 'the shared directory'} mounted?")
        done = probe.probe(folder, _PROBE)
        try:
            return Share(done, _letter(folder / NAME, context.now() if done.served is None else done.served), "")
        except (OSError, ValueError) as exc:
            return Share(done, None, f"{folder / NAME}: {getattr(exc, 'strerror', None) or exc}")


def _letter(path: Path, now: float) -> Letter:
    with path.open("rb") as file:
        raw = json.loads(file.read(65536).decode())
    written = path.stat().st_mtime
    time, credential = (raw.get("time"), raw.get("credential")) if isinstance(raw, dict) else (None, None)
    moment = finite(time)
    if moment is None or not isinstance(credential, str) or not credential.startswith("MUNGE:"):
        raise ValueError("a mapping with time and credential is needed")
    return Letter(moment, credential.strip(), written, now - written)
