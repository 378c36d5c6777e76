# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import hashlib
import typing as t
from pathlib import Path

import pytest
from ansible.errors import AnsibleLookupError

from ansible_collections.hpcai.gpu_cluster.plugins.lookup import node_agent
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._node_program import ProgramError


def lookup(cache: Path, *terms: str, content: bool = False) -> list[str]:
    plugin = node_agent.LookupModule()
    plugin.set_options = lambda **dummy: None
    plugin.get_option = {"cache": str(cache), "content": content}.get
    found: list[str] = plugin.run(list(terms), None)
    return found


def test_the_path_is_that_of_the_file_and_the_same_every_time(tmp_path: Path) -> None:
    (path,) = lookup(tmp_path / "cache")
    assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == Path(path).stem
    assert lookup(tmp_path / "cache") == [path]

    assert base64.b64decode(lookup(tmp_path / "cache", content=True)[0]) == Path(path).read_bytes()


def test_it_takes_no_terms(tmp_path: Path) -> None:
    with pytest.raises(AnsibleLookupError, match="no terms"):
        lookup(tmp_path, "agent")


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the way")
    with pytest.raises(AnsibleLookupError, match="node_agent: "):
        lookup(tmp_path / "cache")


def test_sources_that_make_no_agent_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*dummy: t.Any) -> t.NoReturn:
        raise ProgramError("it imports yaml")

    monkeypatch.setattr(node_agent, "agent", refuse)
    with pytest.raises(AnsibleLookupError, match="it imports yaml"):
        lookup(tmp_path)
