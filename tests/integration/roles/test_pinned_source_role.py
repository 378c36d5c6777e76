# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pinned source on its way from a repository or a server to a host: planned, copied, and left as it is."""

from __future__ import annotations

import functools
import hashlib
import re
import subprocess
import threading
import typing as t
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ansible_playbook import play_here


def commit(directory: Path) -> dict[str, str]:
    """Make a repository with one file; return it as a source."""
    directory.mkdir()
    (directory / "file").write_text("content\n")
    git = ["git", "-C", str(directory), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "--quiet"], ["add", "file"], ["commit", "--quiet", "--message=first"]):
        subprocess.run([*git, *words], check=True)
    done = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return {"git": str(directory), "commit": done.stdout.strip()}


@pytest.fixture
def server(tmp_path: Path) -> t.Iterator[str]:
    """An archive on a server; its URL."""
    (tmp_path / "source.tar").write_bytes(b"archive")
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/source.tar"
        running.shutdown()


@pytest.mark.parametrize("kind", ["git", "url"])
def test_check_mode_says_what_would_come_and_the_second_run_changes_nothing(
    tmp_path: Path, server: str, kind: str
) -> None:
    url = {"archive": server, "sha256": hashlib.sha256(b"archive").hexdigest()}
    source = commit(tmp_path / "repository") if kind == "git" else url
    copied, cache = tmp_path / "host.tar", tmp_path / "cache"
    inputs = {
        "pinned_source_name": "tool",
        "pinned_source_from": source,
        "pinned_source_dest": str(copied),
        "pinned_source_cache_dir": str(cache),
    }

    def changes(*options: str) -> int:
        role = {"include_role": {"name": "hpcai.gpu_cluster.pinned_source"}}
        done = play_here(tmp_path, [role], inputs, *options)
        return int(re.findall(r"changed=(\d+)", done.stdout)[-1])

    assert changes("--check") > 0 and not copied.exists() and not cache.exists()
    assert changes() > 0 and copied.stat().st_mode & 0o777 == 0o600
    assert changes() == 0 and changes("--check") == 0
    copied.unlink()
    assert changes("--check") == 1 and not copied.exists(), "the cache has it, and only the copy is missing"
