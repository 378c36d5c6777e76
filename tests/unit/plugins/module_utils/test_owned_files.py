# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files among other people's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files

OURS = f"# {_owned_files.MARK}\nnew\n"


class Host:
    """What is needed of AnsibleModule."""

    check_mode = False

    def set_fs_attributes_if_different(self, file_args: dict[str, object], changed: bool) -> bool:
        return changed


@pytest.fixture(autouse=True)
def _no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_owned_files, "_known", lambda owner: False)


def settle(wanted: dict[str, str | None], record: _owned_files.Json) -> tuple[list[str], list[str]]:
    changes, findings = _owned_files.plan(wanted)
    _owned_files.note_directories(changes, record)
    _owned_files.apply(Host(), changes, record, {})
    return [one.path for one in changes], [one.about for one in findings]


def test_a_file_comes_stays_and_goes_with_its_directories(tmp_path: Path) -> None:
    path, record = str(tmp_path / "a/b/x.conf"), {}
    assert settle({path: OURS}, record) == ([path], [])
    assert record["directories"] == [str(tmp_path / "a"), str(tmp_path / "a/b")]
    assert settle({path: OURS}, record) == ([], [])
    assert settle({path: None}, record) == ([path], [])
    assert list(tmp_path.iterdir()) == []
    assert record["directories"] == []


def test_a_directory_that_somebody_uses_stays(tmp_path: Path) -> None:
    path, record = tmp_path / "a/x.conf", {}
    settle({str(path): OURS}, record)
    (path.parent / "theirs").write_text("theirs")
    settle({str(path): None}, record)
    assert [one.name for one in path.parent.iterdir()] == ["theirs"]


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_what_is_not_ours_stays(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.conf"
    (tmp_path / "theirs").write_text(OURS)
    if kind == "file":
        path.write_text("theirs\n")
    elif kind == "link":
        path.symlink_to(tmp_path / "theirs")
    else:
        path.mkdir()
    assert settle({str(path): OURS}, {}) == ([], [str(path)])
    assert settle({str(path): None}, {}) == ([], []), "nothing to say of a file that nobody asks for"
    assert path.is_symlink() == (kind == "link")
    assert (tmp_path / "theirs").read_text() == OURS


def test_the_record_is_there_only_while_there_is_something_to_remember(tmp_path: Path) -> None:
    path = tmp_path / "hpcai/record.json"
    _owned_files.save(str(path), {"values": {}, "enabled": ["x"]})
    assert _owned_files.load(str(path)) == {"enabled": ["x"]}
    written = path.stat().st_ino
    _owned_files.save(str(path), {"enabled": ["x"], "values": {}})
    assert path.stat().st_ino == written, "the same is not written again"
    _owned_files.save(str(path), {"enabled": []})
    assert list(tmp_path.iterdir()) == []
    assert _owned_files.load(str(path)) == {}


@pytest.mark.parametrize("text", ["{", "[]", '"x"'])
def test_a_broken_record_stops_before_anything_is_changed(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(_owned_files.RecordError, match="how this host was before"):
        _owned_files.load(str(path))


MALLORY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="files of two users need root")


def file(path: Path, content: str | None = "new\n", owner: str = "root") -> dict[str, str | None]:
    return {"path": str(path), "content": content, "owner": owner}


def mallorys(path: Path) -> Path:
    """Make a directory of a user in one where everybody may make some."""
    path.parent.chmod(0o1777)
    path.mkdir()
    os.chown(path, MALLORY, MALLORY)
    return path


@as_root
@pytest.mark.parametrize("content", ["new\n", None], ids=["file", "directory"])
def test_a_users_link_leads_root_nowhere(tmp_path: Path, content: str | None) -> None:
    """A link to a directory of root's had root write there, and give what it wrote to a service."""
    victim = tmp_path / "victim"
    victim.mkdir()
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "service").symlink_to(victim)
    os.chown(shared / "service", MALLORY, MALLORY, follow_symlinks=False)
    target = shared / "service/x" if content else shared / "service"
    with pytest.raises(_owned_files.FileError, match="symbolic link of"):
        _owned_files.keep(Host(), file(target, content))
    assert list(victim.iterdir()) == []


@as_root
@pytest.mark.parametrize("content", ["new\n", None], ids=["file", "directory"])
def test_nothing_is_put_where_a_user_could_exchange_it(tmp_path: Path, content: str | None) -> None:
    folder = mallorys(tmp_path / "shared")
    with pytest.raises(_owned_files.FileError, match="belongs to"):
        _owned_files.keep(Host(), file(folder / "below/x", content))
    assert list(folder.iterdir()) == []


@as_root
@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_stands_in_a_files_place_is_no_file(tmp_path: Path, kind: str) -> None:
    """What a link leads to was read and shown in the diff; a pipe was waited for."""
    path, victim = tmp_path / "x.conf", tmp_path / "victim"
    victim.write_text("secret\n")
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(_owned_files.FileError, match="symbolic link" if kind == "link" else "no regular file"):
        _owned_files.keep(Host(), file(path))
    assert victim.read_text() == "secret\n"


@as_root
def test_links_and_directories_of_root_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "run").symlink_to("real")
    changed, diff = _owned_files.keep(Host(), file(tmp_path / "run/a/b/x.conf"))
    assert changed and diff["after"] == "new\n"
    assert (tmp_path / "real/a/b/x.conf").read_text() == "new\n"
    assert (tmp_path / "real/a").stat().st_mode & 0o777 == 0o755
    assert _owned_files.keep(Host(), file(tmp_path / "run/a/b/x.conf")) == (False, {})
    assert _owned_files.keep(Host(), file(tmp_path / "run", None)) == (False, {})


@as_root
def test_what_belongs_to_the_service_is_the_services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a directory of its own a service may have written the file before; nobody else's directory will do."""
    folder = mallorys(tmp_path / "spool")
    monkeypatch.setattr(_owned_files, "_ids", lambda owner: (MALLORY, MALLORY) if owner == "service" else (0, 0))
    (folder / "state").write_text("old\n")
    os.chown(folder / "state", MALLORY, MALLORY)
    changed, diff = _owned_files.keep(Host(), file(folder / "state", owner="service"))
    assert (changed, diff["before"]) == (True, "old\n")
    status = (folder / "state").stat()
    assert (status.st_uid, (folder / "state").read_text()) == (MALLORY, "new\n")
    with pytest.raises(_owned_files.FileError, match="belongs to"):
        _owned_files.keep(Host(), file(folder / "other"))


def test_check_mode_makes_nothing(tmp_path: Path) -> None:
    host = Host()
    host.check_mode = True
    assert _owned_files.keep(host, file(tmp_path / "a/x"))[0] and _owned_files.keep(host, file(tmp_path / "b", None))[0]
    assert list(tmp_path.iterdir()) == []
