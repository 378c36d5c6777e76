# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies of the database and of slurmctld's state, jobs before and after, and the configuration under a new release."""

from __future__ import annotations

import shutil
import subprocess
import types
import typing as t
from pathlib import Path

import pytest
from stand_in import stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.upgrade import database, plan, state

CONF = """# Ansible managed
AuthType=auth/munge
StorageHost=db.example
StoragePort=3307
StorageUser=slurm
StoragePass=s3cr=et
StorageLoc=slurm_acct_db
"""


def test_a_password_goes_into_a_file_and_not_on_a_command_line() -> None:
    conf = database.settings(CONF)
    text = database.client(conf, local=False)
    assert text == '[client]\nhost=db.example\nport=3307\nuser=slurm\npassword="s3cr=et"\n'
    assert 'password="a\\\\b\\"c"' in database.client({"storagepass": 'a\\b"c'}, local=False)
    cloud = database.client({**conf, "storageparameters": "SSL_CA=/etc/ssl/ca.pem,SSL_CIPHER=A"}, local=False)
    assert "ssl-ca=/etc/ssl/ca.pem\nssl-cipher=A\n" in cloud
    assert database.client(conf, local=True) == "[client]\nuser=root\n"
    for argv in (database.dump_argv("mariadb-dump", "/run/x", "d"), database.size_argv("mariadb", "/run/x", "d")):
        assert "s3cr=et" not in " ".join(argv) and "--defaults-extra-file=/run/x" in argv


def test_how_large_a_database_is() -> None:
    assert database.sizes("1048576\t524288\t31\n", "d") == (1048576, 524288)
    for text, words in (("0 0 0", "has no tables"), ("ERROR 1045", "did not tell"), ("", "did not tell")):
        with pytest.raises(database.DumpError, match=words):
            database.sizes(text, "d")
    with pytest.raises(database.DumpError, match="is not the name of a database"):
        database.size_argv("mariadb", "/run/x", "d' OR '1'='1")
    assert database.room_problem("/var", 10, 10, "x") == ""
    assert (
        database.room_problem("/var", 10**9, 2 * 10**9, "a copy")
        == "/var has 1.0 GB free, and a copy needs about 2.0 GB"
    )


@pytest.mark.parametrize(
    ("content", "whole"),
    [
        (b"INSERT;\n-- Dump completed on 2026-11-21 18:33:48\n", True),
        (b"INSERT;\n-- Dump completed", True),
        (b"INSERT INTO t VALUES ('-- Dump completed');\nINSERT", False),
        (b"", False),
    ],
)
def test_whether_a_dump_is_whole(tmp_path: Path, content: bytes, whole: bool) -> None:
    path = tmp_path / "d.sql"
    path.write_bytes(content)
    assert (database.whole(path) == "") is whole


EARLY: dict[str, t.Any] = {"target": "26.05.5-1", "time": 100.0}
LATE = {"target": "26.05.5-1", "time": 200.0}
OTHER = {"target": "25.11.1-1", "time": 300.0}


@pytest.mark.parametrize(
    ("have", "since", "found"),
    [
        ("24.11.5-4", None, None),  # it runs: the database changes
        ("24.11.5-4", 0.0, None),  # the machine booted since
        ("24.11.5-4", 150.0, LATE),  # stopped before the copy was made
        ("24.11.5-4", 250.0, None),  # ran after the copy was made
        ("26.05.5-1", 250.0, LATE),  # the new one was started and ended: what is there now is no good
        ("26.05.5-1", None, LATE),
    ],
)
def test_which_copy_is_good(have: str, since: float | None, found: t.Mapping[str, t.Any] | None) -> None:
    assert database.usable([EARLY, LATE, OTHER], have, "26.05.5-1", since) == found


def gone_back(tmp_path: Path, fails: str, copied: bytes = b"CREATE DATABASE") -> list[str]:
    """Return the commands that a shell ran of the way back, where the one with these words failed."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("apt-get", "cp", "mariadb", "systemctl"):
        stand_in(programs / name, "fails_on.sh", calls=tmp_path / "ran")
    copy = tmp_path / "the copy.sql"
    copy.write_bytes(b"CREATE DATABASE")
    record = {"database": "slurm_acct-db", "path": str(copy), "conf": "/b/d.conf", "sha256": database.digest(copy)}
    copy.write_bytes(copied)
    text = database.way_back(record, ["slurmdbd=24.11.5-4"])
    (line,) = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("To go back: ")]
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "FAILS": fails}
    subprocess.run(["sh", "-c", line], env=environment, cwd=tmp_path, capture_output=True, check=False)
    return (tmp_path / "ran").read_text().splitlines()


ALL = [
    "systemctl stop slurmdbd",
    "apt-get install --allow-downgrades slurmdbd=24.11.5-4",
    "mariadb -e DROP DATABASE `slurm_acct-db`",
    "mariadb ",
    "cp -p /b/d.conf /etc/slurm/slurmdbd.conf",
    "systemctl start slurmdbd",
]


def test_the_way_back_is_a_line_for_a_shell(tmp_path: Path) -> None:
    assert gone_back(tmp_path, "nothing") == ALL


@pytest.mark.parametrize("failing", range(len(ALL)))
def test_nothing_runs_after_a_step_of_the_way_back_that_failed(tmp_path: Path, failing: int) -> None:
    words = ALL[failing] if ALL[failing] != "mariadb " else "mariadb"
    done = ALL[: (2 if words == "mariadb" else failing) + 1]
    assert gone_back(tmp_path, words) == done


def test_a_copy_that_is_damaged_costs_no_database(tmp_path: Path) -> None:
    assert gone_back(tmp_path, "nothing", b"") == ALL[:2]


def test_a_copy_has_a_name_of_its_own_and_a_digest(tmp_path: Path) -> None:
    assert database.name("slurm_acct_db", "1:24.11/5", "26.05.5-1", "X") == "slurm_acct_db-1_24.11_5-before-26.05.5-1-X"
    path = tmp_path / "x"
    path.write_bytes(b"")
    assert database.digest(path) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert database.digest(tmp_path / "absent") == ""


def job(number: int, state_: str) -> dict[str, t.Any]:
    return {"job_id": number, "name": "train", "user": "anna", "state": state_}


def test_jobs_that_were_lost() -> None:
    before = [job(1, "RUNNING"), job(2, "PENDING"), job(3, "RUNNING"), job(4, "RUNNING"), job(5, "RUNNING")]
    now = [job(1, "RUNNING"), job(2, "RUNNING"), job(4, "PENDING")]
    assert plan.missing(before, now) == [3, 5]
    ended = plan.ends("3|COMPLETED\n5|CANCELLED by 2001\nx|y\n")
    assert ended == {3: "COMPLETED", 5: "CANCELLED"}
    assert plan.problems(before, now, ended) == ["job 4 (train of anna) ran before and is PENDING now"]
    assert plan.problems(before[2:3], now, {}) == ["job 3 (train of anna, RUNNING before) is gone"]
    assert plan.problems(before[2:3], now, {3: "RUNNING"}) == ["job 3 (train of anna, RUNNING before) is gone"]
    assert plan.problems(before[2:3], now, {3: "NODE_FAIL"}) == [
        "job 3 (train of anna) ran before and is NODE_FAIL now"
    ]
    assert plan.counts(before) == {"PENDING": 1, "RUNNING": 4}


@pytest.mark.parametrize(
    "text", ["ClusterName=a\nSlurmdTimeout=30\nX=1\n", "ClusterName=a\n", "slurmdtimeout = 30 \nX=1\n"]
)
def test_patience_comes_and_goes(text: str) -> None:
    longer = state.raised(text, 3600, 1700000000.5)
    assert "SlurmdTimeout=3600 # upgrade_slurm.yml" in longer
    assert state.raised(longer, 7200, 1.0) == longer  # a second run does not take the first one's for what was before
    back, written = state.restored(longer)
    assert [" ".join(line.replace("=", " ").lower().split()) for line in back.splitlines()] == [
        " ".join(line.replace("=", " ").lower().split()) for line in text.splitlines()
    ]
    assert written == 1700000000.5
    assert state.restored(back) == (back, 0.0)


def test_patience_that_is_long_enough_stays() -> None:
    for text in ("SlurmdTimeout=7200\n", "SlurmdTimeout=0\n"):
        assert state.raised(text, 3600, 1.0) == text
    text = "X=1\n\nSlurmdTimeout=300\nY=1\n"
    assert state.restored(state.raised(text, 3600, 1.0))[0] == text


def test_state_is_copied_whole_and_once(tmp_path: Path) -> None:
    source, config, base = tmp_path / "s", tmp_path / "etc", tmp_path / "b"
    (base / "state-killed.partial/state").mkdir(parents=True)
    (source / "hash.1").mkdir(parents=True)
    (source / "hash.1/job").write_text("x")
    (source / "job_state").write_text("y")
    config.mkdir()
    (config / "slurm.conf").write_text("StateSaveLocation=/s\n")
    assert state.state_directory((config / "slurm.conf").read_text()) == Path("/s")
    record = state.copy(source, config, base, "24.11.5-4", "26.05.5-1")
    assert (Path(record["path"]) / "state/hash.1/job").read_text() == "x"
    assert state.latest(base, "26.05.5-1")["marks"] == state.marks(source)
    assert state.latest(base, "25.11.0-1") == {}
    assert base.stat().st_mode & 0o777 == 0o700 and not list(base.glob("*.partial"))
    shutil.rmtree(record["path"])
    assert state.latest(base, "26.05.5-1") == {}, "a record without its copy is none"


def test_state_without_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job_state").write_text("y" * 1000)
    assert state.room(tmp_path, tmp_path / "not/yet") == 1000
    monkeypatch.setattr(shutil, "disk_usage", lambda dummy: types.SimpleNamespace(free=1000))
    with pytest.raises(state.StateError, match="MB free, and a copy of"):
        state.room(tmp_path, tmp_path / "not/yet")


def test_a_dump_leaves_what_a_killed_copy_of_the_state_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slurmdbd.conf").write_text(CONF)
    (tmp_path / "state-x.partial").mkdir()
    (tmp_path / "slurm_acct_db-x.sql.partial").touch()
    monkeypatch.setattr(database, "program", lambda *dummy: "echo")
    params = {"directory": tmp_path, "config": tmp_path / "slurmdbd.conf", "have": "1", "target": "2", "timeout": 9}
    with pytest.raises(database.DumpError, match="does not end with"):
        database.Dumper(params)._copy("/run/x")
    assert [path.name for path in tmp_path.glob("*.partial")] == ["state-x.partial"]


def test_a_slurmdbd_that_answers_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slurmdbd.conf").write_text(f"LogFile={tmp_path}/log\nDbdPort=7031\n")
    calls: list[str] = []
    confs: list[str] = []

    def run(argv: list[str], dummy: float, environment: t.Mapping[str, str] | None = None) -> Outcome:
        calls.append(argv[0])
        if environment:
            confs.append(Path(environment["SLURM_CONF"]).read_text())
        shown = "ActiveState=active\nSubState=running\nNRestarts=3\nResult=success\n"
        return Outcome(0, shown if argv[0] == "systemctl" else "lab\n", "", 0.1)

    monkeypatch.setattr(database, "run", run)
    worker = database.Starter({"config": tmp_path / "slurmdbd.conf", "wait": 5, "version": "26.05.5"})
    found = worker.run("")
    assert found["done"] and found["clusters"] == ["lab"] and calls == ["sacctmgr"]
    assert "AccountingStoragePort=7031\n" in confs[0], "a host of slurmdbd alone has no slurm.conf"
    monkeypatch.setattr(database.Starter, "_answers", lambda dummy: False)
    with pytest.raises(database.StartError, match="slurmdbd ended"):
        worker.run("")


def test_state_is_copied_below_a_slurmctld_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, config = tmp_path / "s", tmp_path / "etc"
    source.mkdir()
    config.mkdir()
    (source / "job_state").write_text("y")
    copytree = shutil.copytree

    def one_goes(where: Path, target: Path, **more: t.Any) -> None:
        copytree(where, target, **more)
        if where == source:
            raise shutil.Error([(str(source / "job_state.new"), "x", "No such file or directory")])

    monkeypatch.setattr(shutil, "copytree", one_goes)
    record = state.copy(source, config, tmp_path / "b", "24.11.5-4", "26.05.5-1")
    assert set(record["marks"]) == {"job_state"}
    (source / "job_state.new").write_text("it is there and could not be read")
    with pytest.raises(shutil.Error):
        state.copy(source, config, tmp_path / "b", "24.11.5-4", "26.05.5-2")


SLURM_CONF = """ClusterName=a
AuthType=auth/munge
TaskPlugin=task/cgroup,task/affinity
TopologyPlugin=topology/default
JobContainerType=job_container/tmpfs
JobCompType=jobcomp/none
AccountingStorageTRES=gres/gpu
MpiDefault=pmix
PluginDir=/old
NodeName=c1
"""


def test_plugins_that_a_configuration_asks_for() -> None:
    wanted = state.plugins(SLURM_CONF)
    names = {"auth_munge", "task_cgroup", "task_affinity", "topology_default", "job_container_tmpfs", "mpi_pmix"}
    assert set(wanted) == names
    there = {"auth_munge", "task_cgroup", "task_affinity", "topology_flat", "mpi_pmi2"}
    assert state.lacking(wanted, there) == [
        "jobcontainertype=job_container/tmpfs: the new packages hold no plugin job_container_tmpfs.so",
        "mpidefault=pmix: the new packages hold no plugin mpi_pmix.so",
    ]
    assert state.lost_plugins(["mpi_pmix", "data_parser_v0_0_40", "auth_munge"], there) == ["mpi_pmix"]


def test_the_trial_loads_its_own_plugins() -> None:
    text = state.staged(SLURM_CONF, "/stage/plugins")
    assert text.endswith("NodeName=c1\nPluginDir=/stage/plugins\n") and "/old" not in text
