# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens to a record in a container that another job replaces meanwhile; the service: test_results_blob.py."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _blob


def record(*stages: str) -> dict[str, t.Any]:
    return {"schema": 1, "stages": [{"run": "awx-1", "stage": name, "start": name} for name in stages]}


class Container(_blob.Blobs):
    """A container in memory, in which others write after each of the first looks."""

    def __init__(self, *others: str) -> None:
        self.place, self.text, self.version = "https://a.blob.core.windows.net/c", "", 0
        self.others = list(others)

    def read(self, name: str) -> tuple[str, str]:
        seen = (self.text, str(self.version) if self.text else "")
        if self.others:
            stages = [stage["stage"] for stage in json.loads(self.text or "{}").get("stages", [])]
            self.text, self.version = json.dumps(record(*stages, self.others.pop(0))), self.version + 1
        return seen

    def replace(self, name: str, content: bytes, version: str | None = None) -> bool:
        if version != (str(self.version) if self.text else ""):
            return False
        self.text, self.version = content.decode(), self.version + 1
        return True


def test_what_others_wrote_between_look_and_write_is_merged() -> None:
    container = Container("a", "b")
    kept = _blob.keep(container, "run.json", record("own"), 10)
    assert {stage["stage"] for stage in kept["stages"]} == {"a", "b", "own"}
    assert json.loads(container.text) == kept


def test_one_that_never_gets_its_turn_says_so() -> None:
    with pytest.raises(_blob.BlobError, match="others replaced it 10 times"):
        _blob.keep(Container(*map(str, range(50))), "run.json", record("own"), 10)


@pytest.mark.parametrize(
    "place",
    [
        "http://a.blob.core.windows.net/c",
        "https://account.blob.core.windows.net/",
        "https://account.blob.core.windows.net/results?sig=x",
        "https://account.blob.core.windows.net/results/../other",
        "https://account.blob.core.windows.net@example.org/results",
        "/var/lib/results",
    ],
)
def test_only_a_container_s_address_is_one(place: str) -> None:
    with pytest.raises(_blob.BlobError, match="no place for blobs"):
        _blob.Blobs(place)
