# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import service

LOST = {"state": "DOWN", "flags": ["NOT_RESPONDING"], "available": False, "reason": "Not responding"}
HELD = {"flags": ["DRAIN"], "available": False, "drained": True, "reason": "ops: cable"}
OFF = {"flags": ["CLOUD", "POWERED_DOWN"], "available": False}
COMING = {"state": "ALLOCATED", "flags": ["CLOUD", "POWERING_UP"], "available": False}
BUSY = {"state": "ALLOCATED"}


def cluster(*nodes: dict[str, t.Any], home: str = "c1 c2 c3") -> dict[str, t.Any]:
    idle = {"state": "IDLE", "flags": [], "available": True, "drained": False, "reason": ""}
    found = [{"name": f"c{number}", **idle, **node} for number, node in enumerate(nodes, start=1)]
    other = {"default": False, "nodes": ["c1", "c2", "c3", "c4"]}
    return {"nodes": found, "partitions": [{"default": True, "nodes": home.split()}, other]}


@pytest.mark.parametrize(
    ("seen", "settled", "proof"),
    [
        (cluster({}, {}, {}), True, 2),
        (cluster({}, {}, {}, home="c2"), True, 1),
        (cluster(BUSY, BUSY, BUSY), True, 0),
        (cluster(BUSY, {}, {}), True, 2),
        (cluster(BUSY, {}, home="c1 c2"), True, 0),
        (cluster({}, HELD, home="c1 c2"), True, 1),
        (cluster(HELD, HELD, HELD), True, 0),
        (cluster({}, {}, LOST), False, 2),
        (cluster({}, {}, {}, LOST), False, 2),
        (cluster(LOST, LOST, LOST), False, 0),
        (cluster({}, OFF, COMING), True, 1),
        (cluster(OFF, OFF, OFF), True, 0),
    ],
)
def test_service(seen: dict[str, t.Any], settled: bool, proof: int) -> None:
    found = service(**seen)
    assert (found.settled, found.proof) == (settled, proof)


def test_what_is_broken_is_named() -> None:
    assert service(**cluster({}, {}, LOST)).broken == ["c3 is DOWN+NOT_RESPONDING: Not responding"]
