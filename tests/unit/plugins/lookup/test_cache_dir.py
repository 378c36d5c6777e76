# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ansible_collections
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._cache_dir import directory

ROOT = Path(__file__).resolve().parents[4]
COLLECTIONS = Path(next(iter(ansible_collections.__path__))).parent


@pytest.mark.parametrize(
    "given, cache, wanted",
    [
        (None, None, "/home/a/.cache/hpcai.gpu_cluster"),
        (None, "/x", "/x/hpcai.gpu_cluster"),
        ("~/kept", "/x", "/home/a/kept"),
    ],
)
def test_without_a_setting_it_is_the_users_cache(
    monkeypatch: pytest.MonkeyPatch, given: str | None, cache: str | None, wanted: str
) -> None:
    monkeypatch.setenv("HOME", "/home/a")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if cache:
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
    assert str(directory(given)) == wanted


def test_a_variable_wins_over_the_environment_for_every_plugin(tmp_path: Path) -> None:
    shown = "{{ lookup('hpcai.gpu_cluster.cache_dir', 'wheelhouse') }} {{ lookup('hpcai.gpu_cluster.node_agent') }}"
    own = {"ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS), "HPCAI_CACHE_DIR": str(tmp_path / "other")}
    words = ["localhost", "-m", "debug", "-a", f"msg='{shown}'", "-e", f"cluster_cache_dir={tmp_path}/site"]
    command = [sys.executable, "-m", "ansible.cli.adhoc", *words]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert f"{tmp_path}/site/wheelhouse {tmp_path}/site/agent/" in done.stdout, done.stdout + done.stderr
    assert not (tmp_path / "other").exists()


def test_no_role_keeps_anything_in_a_home_by_itself() -> None:
    """A job of AWX has no home that lasts."""
    own = re.compile(r"~/\.cache|XDG_CACHE_HOME|'HOME'")
    found = [path for path in ROOT.glob("roles/*/*/*.yml") if own.search(path.read_text(encoding="utf-8"))]
    assert found == []
