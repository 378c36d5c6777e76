# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a service was seen to run with its current files."""

from __future__ import annotations

import base64
import hashlib
import typing as t

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.hpcai.gpu_cluster.plugins.filter.service_settled import service_settled

DIGEST = hashlib.sha256(b"text").hexdigest()
FILES = [
    {"path": "/a", "content": "text"},
    {"path": "/b", "base64": base64.b64encode(b"text").decode(), "mode": "0755"},
    {"path": "/c", "content": "text", "owner": "munge", "mode": "400"},
]
SEEN = {"/a": f"root:root 0644 {DIGEST}", "/b": f"root:root 0755 {DIGEST}", "/c": f"munge:munge 0400 {DIGEST}"}


def settled(seen: t.Any, files: t.Any = FILES) -> bool:
    return service_settled({"units": {"one": seen}}, "one", files)


def test_a_service_with_the_files_that_it_is_to_have_is_settled() -> None:
    assert settled(SEEN)
    assert settled({**SEEN, "/of-nobody": ""}), "what else is in its directories is no matter"


@pytest.mark.parametrize(
    "changed",
    [
        {"/a": f"root:root 0600 {DIGEST}"},
        {"/a": f"trainer:root 0644 {DIGEST}"},
        {"/a": f"root:trainer 0644 {DIGEST}"},
        {"/b": f"root:root 0755 {hashlib.sha256(b'other').hexdigest()}"},
        {"/b": "root:root 0755"},
        {"/c": None},
    ],
)
def test_a_file_that_is_otherwise_or_was_not_seen_is_for_the_module(changed: dict[str, t.Any]) -> None:
    assert not settled({**SEEN, **changed})


def test_a_directory_of_the_service_is_for_the_module() -> None:
    assert not settled({**SEEN, "/folder": ""}, [*FILES, {"path": "/folder"}])


@pytest.mark.parametrize(
    "node", [{}, {"units": {}}, {"units": {"other": SEEN}}, {"units": {"one": {}}}, {"skipped": True}]
)
def test_what_was_not_looked_at_is_not_settled(node: dict[str, t.Any]) -> None:
    assert not service_settled(node, "one", FILES)


def test_what_is_no_result_and_no_list_of_files_is_an_error() -> None:
    for node, files in (([], FILES), ({"units": {"one": SEEN}}, [{"content": "text"}]), ({"units": {"one": SEEN}}, 3)):
        with pytest.raises(AnsibleFilterError, match="service_settled takes"):
            service_settled(node, "one", files)
