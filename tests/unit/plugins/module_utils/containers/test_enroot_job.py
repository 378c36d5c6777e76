# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens around jobs: directories come, go, and cannot be turned against root."""

from __future__ import annotations

import json
import os
import stat
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.containers import enroot_host

ME, GROUP = os.getuid(), os.getgid()
ALL = ("cache", "data", "run", "tmp")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    place = tmp_path / "scratch/enroot"
    place.parent.mkdir()
    enroot_host.base(str(place), ME)
    return place


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_users_get_directories_that_only_they_can_read(base: Path) -> None:
    enroot_host.have(str(base), ME, GROUP, ALL)
    assert [mode(base), mode(base / enroot_host.TRASH), mode(base / str(ME))] == [0o755, 0o700, 0o700]
    assert sorted(path.name for path in (base / str(ME)).iterdir()) == sorted(ALL)
    assert {mode(path) for path in (base / str(ME)).iterdir()} == {0o700}
    (base / str(ME)).chmod(0o777)
    (base / str(ME) / "run").rmdir()
    enroot_host.have(str(base), ME, GROUP, ALL)
    assert mode(base / str(ME)) == 0o700
    assert (base / str(ME) / "run").is_dir()
    assert enroot_host.users(str(base)) == [ME]


def test_what_somebody_put_in_the_place_is_moved_away(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "enroot", tmp_path / "elsewhere"
    elsewhere.mkdir()
    place.symlink_to(elsewhere)
    enroot_host.base(str(place), ME)
    assert not place.is_symlink()
    (place / str(ME)).symlink_to(elsewhere)
    enroot_host.have(str(place), ME, GROUP, ALL)
    assert not (place / str(ME)).is_symlink()
    assert list(elsewhere.iterdir()) == []
    assert len(enroot_host.trash(str(place))) == 1


def test_a_directory_that_others_may_write_to_is_closed(tmp_path: Path) -> None:
    (tmp_path / "enroot").mkdir()
    (tmp_path / "enroot").chmod(0o1777)
    enroot_host.base(str(tmp_path / "enroot"), ME)
    assert mode(tmp_path / "enroot") == 0o755


def test_nothing_is_made_where_scratch_is_away(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        enroot_host.base(str(tmp_path / "scratch/enroot"), ME)


def test_links_in_a_users_directory_are_not_followed(base: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (victim / "file").mkdir(parents=True)
    enroot_host.have(str(base), ME, GROUP, ALL)
    (base / str(ME) / "data").rmdir()
    (base / str(ME) / "data").symlink_to(victim)
    enroot_host.empty(str(base), ME, ALL)
    assert (victim / "file").is_dir()
    assert list((base / str(ME)).iterdir()) == []
    assert len(enroot_host.trash(str(base))) == len(ALL)


def test_emptying_what_is_not_there_is_no_error(base: Path) -> None:
    enroot_host.empty(str(base), 424242, ALL)
    assert enroot_host.trash(str(base / "no")) == []
    assert enroot_host.users(str(base / "no")) == []
    assert 0 <= enroot_host.used(str(base)) <= 100
    assert enroot_host.group_of(ME) == GROUP or enroot_host.group_of(ME) >= 0
    assert enroot_host.group_of(3999999999) == 3999999999


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        (
            {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "2001", "SLURM_JOB_GID": "100"},
            enroot_host.EnrootProofJob("7", 2001, 100),
        ),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_UID": "3999999999"}, enroot_host.EnrootProofJob("7", 3999999999, 3999999999)),
        ({"SLURM_JOB_ID": "../x", "SLURM_JOB_UID": "2001"}, None),
        ({}, None),
    ],
)
def test_slurmd_says_whose_job_it_is(environment: dict[str, str], wanted: enroot_host.EnrootProofJob | None) -> None:
    assert enroot_host.job_of(environment) == wanted


@pytest.mark.parametrize(
    ("keep", "full", "gone"),
    [
        (False, 10, {"run", "tmp", "data"}),
        (True, 10, {"run", "tmp"}),
        (False, 81, {"run", "tmp", "data", "cache"}),
        (True, 81, {"run", "tmp", "cache"}),
    ],
)
def test_what_goes_with_the_last_job(keep: bool, full: float, gone: set[str]) -> None:
    assert set(enroot_host.leftovers({"keep_containers": keep, "cache_until": 80}, full)) == gone


STATUS = "Name:\tbash\nState:\tS (sleeping)\nUid:\t2001\t2001\t2001\t2001\nGid:\t100\n"


def test_owners_are_those_of_processes_that_live(tmp_path: Path) -> None:
    assert enroot_host.owner(STATUS) == 2001
    assert enroot_host.owner(STATUS.replace("S (sleeping)", "Z (zombie)")) == -1
    assert enroot_host.owner("") == -1
    (tmp_path / "12").mkdir()
    (tmp_path / "12/status").write_text(STATUS)
    (tmp_path / "13").mkdir()
    (tmp_path / "self").mkdir()
    assert enroot_host.owners(str(tmp_path)) == {2001}
    assert ME in enroot_host.owners()


@pytest.fixture
def node(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[dict[str, t.Any]]:
    """A node where nobody runs anything, and root is whoever runs the tests."""
    monkeypatch.setattr(enroot_host.os, "umask", lambda mask: 0)
    monkeypatch.setattr(enroot_host, "STATE", str(tmp_path / "state"))
    monkeypatch.setattr(enroot_host, "owners", lambda proc="": set())
    monkeypatch.setattr(enroot_host, "used", lambda path: 10.0)
    monkeypatch.setattr(enroot_host.base, "__defaults__", (ME,))
    called: list[list[str]] = []
    monkeypatch.setattr(enroot_host.subprocess, "run", lambda argv, **dummy: called.append(argv))
    settings = tmp_path / "enroot.json"
    settings.write_text(json.dumps({"base": str(base), "keep_containers": False, "cache_until": 80}))
    yield {"base": base, "settings": str(settings), "called": called, "monkeypatch": monkeypatch}


def event(node: dict[str, t.Any], name: str, number: int) -> list[str]:
    """Let slurmd start a prolog or an epilog; return which directories its user has then."""
    for key, value in (("ID", number), ("UID", ME), ("GID", GROUP)):
        node["monkeypatch"].setenv(f"SLURM_JOB_{key}", str(value))
    assert enroot_host.main([name, node["settings"]]) == 0
    return sorted(path.name for path in (node["base"] / str(ME)).iterdir())


def test_the_last_job_of_a_user_cleans_up(node: dict[str, t.Any]) -> None:
    assert event(node, "prolog", 1) == sorted(ALL)
    assert event(node, "prolog", 2) == sorted(ALL)
    assert event(node, "epilog", 1) == sorted(ALL)
    assert node["called"] == []
    assert event(node, "epilog", 2) == ["cache"]
    assert node["called"] == [["/bin/systemctl", "restart", "--no-block", "hpcai-enroot.service"]]


def test_a_user_with_processes_keeps_what_they_use(node: dict[str, t.Any]) -> None:
    event(node, "prolog", 1)
    node["monkeypatch"].setattr(enroot_host, "owners", lambda proc="": {ME})
    assert event(node, "epilog", 1) == sorted(ALL)


def test_after_a_power_cut_the_unit_cleans_up(node: dict[str, t.Any]) -> None:
    event(node, "prolog", 1)
    assert enroot_host.main(["clean", node["settings"]]) == 0
    assert node["called"] == [], "a job is running"
    (Path(enroot_host.STATE) / f"jobs/{ME}/1").unlink()
    (Path(enroot_host.STATE) / f"jobs/{ME}").rmdir()
    assert enroot_host.main(["clean", node["settings"]]) == 0
    assert [argv[:3] for argv in node["called"]] == [["/bin/rm", "-rf", "--one-file-system"]] * 3


@pytest.mark.parametrize("argv", [[], ["prolog"], ["prolog", "/no/such/file"], ["prolog", "SETTINGS"]])
def test_it_never_fails_a_job(node: dict[str, t.Any], argv: list[str], capsys: t.Any) -> None:
    node["monkeypatch"].setenv("SLURM_JOB_ID", "1")
    node["monkeypatch"].setenv("SLURM_JOB_UID", str(ME))
    node["monkeypatch"].setattr(enroot_host, "base", lambda path: 1 / 0)
    assert enroot_host.main([node["settings"] if word == "SETTINGS" else word for word in argv]) == 0
    assert "hpcai-enroot: " in capsys.readouterr().err
