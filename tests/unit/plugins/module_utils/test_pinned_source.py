# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import io
import subprocess
import tarfile
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _sources as source

COMMIT, DIGEST = "c" * 40, "d" * 64


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({"git": "https://example.org/x.git", "commit": COMMIT}, f"commit:{COMMIT}"),
        ({"git": "/srv/x", "commit": COMMIT, "archive": None, "sha256": ""}, f"commit:{COMMIT}"),
        ({"archive": "/srv/x.tar.gz", "sha256": DIGEST}, f"sha256:{DIGEST}"),
    ],
)
def test_identity(given: dict[str, t.Any], want: str) -> None:
    assert source.identity(given) == want


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"git": "/srv/x"},
        {"archive": "/srv/x.tar"},
        {"archive": "/srv/x.tar", "sha256": "d" * 40},
        {"git": "/srv/x", "commit": "v1.0"},
        {"git": "/srv/x", "commit": COMMIT[:12]},
        {"git": "/srv/x", "commit": COMMIT, "archive": "/srv/x.tar", "sha256": DIGEST},
    ],
)
def test_what_is_not_pinned_is_refused(given: dict[str, t.Any]) -> None:
    with pytest.raises(source.SourceError, match="commit"):
        source.identity(given)


def archive(path: Path, *members: tarfile.TarInfo, **options: t.Any) -> str:
    with tarfile.open(path, "w", **options) as out:
        for member in members:
            out.addfile(member, io.BytesIO(b"x" * member.size) if member.isfile() else None)
    return f"sha256:{source.sha256(str(path))}"


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside"),
        member("/etc/outside"),
        member("s/link", tarfile.SYMTYPE, "../../outside"),
        member("s/link", tarfile.SYMTYPE, "/etc"),
        member("s/link", tarfile.LNKTYPE, "../outside"),
        member("s/device", tarfile.CHRTYPE),
    ],
)
def test_an_archive_that_leads_out_of_itself_is_refused(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    known = archive(tmp_path / "a.tar", member("s/Makefile"), bad)
    with pytest.raises(source.SourceError, match="leads out of it or is no file"):
        source.unpack(str(tmp_path / "a.tar"), known, tmp_path / "in")
    assert not (tmp_path / "outside").exists()


def test_links_inside_an_archive_are_kept_and_set_id_bits_are_not(tmp_path: Path) -> None:
    parts = [
        member("s/a", mode=0o6777),
        member("s/b", tarfile.SYMTYPE, "a"),
        member("s/d", tarfile.DIRTYPE, mode=0o755),
    ]
    known = archive(tmp_path / "a.tar", *parts)
    assert source.unpack(str(tmp_path / "a.tar"), known, tmp_path / "in") == str(tmp_path / "in/s")
    assert (tmp_path / "in/s/b").resolve() == tmp_path / "in/s/a"
    assert (tmp_path / "in/s/a").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\x1f\x8b" + b"cut"])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(content)
    with pytest.raises(source.SourceError, match="cannot be unpacked"):
        source.unpack(str(path), f"sha256:{source.sha256(str(path))}", tmp_path / "in")
    with pytest.raises(source.SourceError, match="commit unknown"):
        source.unpack(str(path), f"commit:{'a' * 40}", tmp_path / "in")


def test_git_s_archive_tells_its_commit(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    archive(path, member("s/Makefile"), format=tarfile.PAX_FORMAT, pax_headers={"comment": "c" * 40})
    assert source.unpack(str(path), f"commit:{'c' * 40}", tmp_path / "in") == str(tmp_path / "in/s")
    with pytest.raises(source.SourceError, match=f"commit {'c' * 40}, not {'d' * 40}"):
        source.unpack(str(path), f"commit:{'d' * 40}", tmp_path / "other")


def test_git_archives_carry_the_comment_that_is_relied_on(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y"]
    (tmp_path / "Makefile").touch()
    for argv in ("init -q", "add Makefile", "commit -q -m x", "archive --prefix=s/ -o a.tar HEAD"):
        subprocess.run([*git, *argv.split()], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert source._commit(str(tmp_path / "a.tar")) == commit
