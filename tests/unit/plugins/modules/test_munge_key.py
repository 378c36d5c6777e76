# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module munge_key as a process: a key that is made once, and keys that somebody else may have made."""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
import typing as t
from pathlib import Path

import pytest
from module_process import Machine

KEY = bytes(range(128))
MALLORY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files of two users need root")


class Module(Machine):
    module = "munge_key"


@pytest.fixture
def module(tmp_path: Path) -> Module:
    return Module(tmp_path)


@pytest.fixture
def key() -> t.Iterator[Path]:
    """The copy of the key on a directory that everybody can write to, in one that only root can."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    secret = folder / "hpcai/secret"
    secret.mkdir(parents=True, mode=0o700)
    file = secret / "munge.key"
    file.write_bytes(KEY)
    file.chmod(0o400)
    yield file
    shutil.rmtree(folder)


def test_a_key_is_made_once_and_then_stays(module: Module, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    path = tmp_path / "munge.key"
    planned = module(check_mode=True, path=str(path), owner="root")
    assert (planned["changed"], planned["key"]) == (True, ""), "a key that is not kept is not returned"
    assert not path.exists()
    made = module(path=str(path), owner="root")
    assert made["changed"] is True
    assert base64.b64decode(made["key"]) == path.read_bytes()
    again = module(path=str(path), owner="root")
    assert (again["changed"], again["key"]) == (False, made["key"])
    path.chmod(0o644)
    assert module(path=str(path), owner="root")["changed"] is True


def test_a_copy_that_root_made_is_read_and_not_touched(module: Module, key: Path) -> None:
    before = key.stat()
    assert base64.b64decode(module(path=str(key), create=False)["key"]) == KEY
    assert "key" not in module(path=str(key), create=False, returned=False)
    assert key.stat() == before or key.stat().st_ctime_ns == before.st_ctime_ns


def forge(key: Path) -> None:
    """Everything below the shared directory is the user's, as it is when the user was there first."""
    for path in (key, key.parent, key.parents[1]):
        os.chown(path, MALLORY, MALLORY)


def own(key: Path) -> None:
    os.chown(key, MALLORY, MALLORY)


def exchange(key: Path) -> None:
    os.chown(key.parents[1], MALLORY, MALLORY)


def link(key: Path) -> None:
    other = key.with_name("other")
    key.rename(other)
    key.symlink_to(other)


def show(key: Path) -> None:
    key.chmod(0o440)


def cut(key: Path) -> None:
    key.chmod(0o600)
    key.write_bytes(KEY[:31])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (forge, "belongs to nobody (uid 65534)"),
        (own, "belongs to nobody (uid 65534)"),
        (exchange, "hpcai belongs to nobody (uid 65534)"),
        (link, "is a symbolic link"),
        (show, "has mode 0440"),
        (cut, "has 31 bytes"),
        (Path.unlink, "is missing"),
    ],
)
def test_a_key_that_another_user_can_have_made_or_read_is_none(
    module: Module, key: Path, spoil: t.Callable[[Path], None], reason: str
) -> None:
    spoil(key)
    for returned in (True, False):
        result = module(path=str(key), create=False, returned=returned)
        assert result["failed"] and reason in result["msg"]
        assert "key" not in result


def test_a_users_file_in_the_place_of_the_first_key_is_not_taken(module: Module, key: Path) -> None:
    forge(key)
    assert "belongs to nobody" in module(path=str(key), owner="root")["msg"]
