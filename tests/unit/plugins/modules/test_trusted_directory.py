# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module trusted_directory as a process: check mode, a change, nothing left to do, and what users prepared."""

from __future__ import annotations

import base64
import os
import shutil
import stat
import tempfile
import typing as t
from pathlib import Path

import pytest
from module_process import Machine

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import NotAllowedError, TrustError
from ansible_collections.hpcai.gpu_cluster.plugins.modules import trusted_directory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files of two users need root")


class Module(Machine):
    module = "trusted_directory"


@pytest.fixture
def module(tmp_path: Path) -> Module:
    return Module(tmp_path)


@pytest.fixture
def shared() -> t.Iterator[Path]:
    """Like an NFS export for everybody; pytest's own directories are below one that only root can enter."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def owner_and_mode(path: Path) -> tuple[str, str]:
    return path.owner(), f"{stat.S_IMODE(path.lstat().st_mode):o}"


def test_check_mode_tells_what_the_run_does_and_the_next_run_does_nothing(module: Module, shared: Path) -> None:
    folder = shared / "certification"
    wanted = {
        "directories": [{"path": str(folder), "owner": "nobody"}, {"path": f"{shared}/examples/logs", "mode": "1777"}],
        "files": [
            {"path": f"{folder}/agent.pyz", "base64": base64.b64encode(b"\0agent").decode(), "owner": "nobody"},
            {"path": f"{shared}/readme", "content": "read\n", "mode": "0444"},
        ],
    }
    would = module(check_mode=True, **wanted)
    assert not list(shared.iterdir())
    done = module(**wanted)
    assert would["changed"] is done["changed"] is True
    assert {key: would[key] for key in ("directories", "files", "diff")} == {
        key: done[key] for key in ("directories", "files", "diff")
    }
    assert [entry["changes"] for entry in done["directories"] + done["files"]] == [["created"]] * 4
    assert owner_and_mode(folder) == ("nobody", "755")
    assert owner_and_mode(shared / "examples/logs") == ("root", "1777")
    assert (folder / "agent.pyz").read_bytes() == b"\0agent"
    assert owner_and_mode(folder / "agent.pyz") == ("nobody", "644")
    assert owner_and_mode(shared / "readme") == ("root", "444")
    for check_mode in (True, False):
        again = module(check_mode=check_mode, **wanted)
        assert (again["changed"], again["diff"]) == (False, [])


@pytest.mark.parametrize("owner", ["root", "nobody"])
def test_nothing_is_made_where_one_of_them_is_a_users_link(module: Module, shared: Path, owner: str) -> None:
    victim = shared / "victim"
    victim.mkdir()
    (shared / "mine").symlink_to(victim)
    os.chown(shared / "mine", 65534, 65534, follow_symlinks=False)
    result = module(directories=[{"path": f"{shared}/first"}, {"path": f"{shared}/mine", "owner": owner}])
    assert result["failed"] and "Nothing was changed." in result["msg"]
    assert f"{shared}/mine is a symbolic link of nobody (uid 65534)" in result["msg"]
    assert sorted(path.name for path in shared.iterdir()) == ["mine", "victim"]
    assert owner_and_mode(victim) == ("root", "755")


def test_a_name_is_reserved_once_and_left_alone_afterwards(module: Module, shared: Path) -> None:
    wanted = {
        "directories": [
            {"path": f"{shared}/pytorch", "reserve": True},
            {"path": f"{shared}/images", "owner": "nobody", "reserve": True},
            {"path": f"{shared}/wheels", "owner": "no-such-user", "reserve": True},
        ]
    }
    assert module(check_mode=True, **wanted)["changed"] is True
    done = module(**wanted)
    assert (done["changed"], [entry["path"] for entry in done["refused"]]) == (True, [f"{shared}/wheels"])
    assert "no-such-user" in str(done["warnings"])
    assert owner_and_mode(shared / "images") == ("nobody", "755")
    os.chown(shared / "pytorch", 65534, 65534)  # a role gave it to its user
    (shared / "pytorch").chmod(0o700)
    assert module(**wanted)["changed"] is False
    assert owner_and_mode(shared / "pytorch") == ("nobody", "700")


def test_in_check_mode_a_name_is_reserved_for_a_user_whom_the_run_makes(module: Module, shared: Path) -> None:
    wanted = {"directories": [{"path": f"{shared}/images", "owner": "no-such-user", "reserve": True}]}
    would = module(check_mode=True, **wanted)
    assert (would["changed"], would["refused"], would.get("warnings", [])) == (True, [], [])
    (shared / "images").mkdir()
    assert module(check_mode=True, **wanted)["changed"] is False


def test_in_check_mode_the_owner_may_be_one_that_a_package_makes(module: Module, shared: Path) -> None:
    wanted = {"directories": [{"path": f"{shared}/health", "owner": "no-such-user", "mode": "0700"}]}
    assert module(check_mode=True, **wanted)["changed"] is True
    assert "no-such-user" in module(**wanted)["msg"]


@pytest.mark.parametrize(
    ("exc", "words"),
    [
        (TrustError("/shared is of uid 1000"), "others could exchange"),
        (NotAllowedError("/shared/home cannot be made by uid 3002: Permission denied"), "Cannot have the directories"),
        (OSError(28, "No space left on device"), "Cannot have the directories"),
    ],
)
def test_only_what_is_distrusted_is_called_so(exc: Exception, words: str) -> None:
    assert words in trusted_directory.refusal(exc)


@pytest.mark.parametrize(
    "entry", [{"content": "x", "base64": "eA=="}, {}, {"base64": "?"}, {"content": "x", "mode": "9"}]
)
def test_options_that_cannot_be_meant_are_refused(module: Module, shared: Path, entry: dict[str, str]) -> None:
    assert module(files=[{"path": f"{shared}/x", **entry}])["failed"]
