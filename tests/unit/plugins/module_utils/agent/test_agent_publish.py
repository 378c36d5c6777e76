# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpcai-agent publish and latch, and how the agent knows its machine."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import subprocess
import tempfile
import time
import typing as t
from pathlib import Path

import pytest
from patience import patience

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import check, commands, runner
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import state as agent_state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import BootedHost

Json = t.Dict[str, t.Any]
# A user that every Debian has, and no file of this test belongs to.
OTHER = "daemon"


class Node:
    def __init__(self, folder: Path) -> None:
        self.mailbox, self.spool, self.path = folder / "mailbox", folder / "spool", folder / "agent.json"
        self.mailbox.mkdir(mode=0o700)
        (folder / "sys/kernel/random").mkdir(parents=True)
        (folder / "sys/kernel/random/boot_id").write_text("first\n")
        self._known = {"schema": 1, "node": "n1", "spool": str(self.spool), "mailbox": str(self.mailbox)}
        self._known["proc"] = str(folder)
        self.write()

    def write(self, **more: t.Any) -> None:
        self.path.write_text(json.dumps({**self._known, **more}))

    def save(self, suite: str, *records: Json) -> None:
        agent_state.save(
            agent_state.StateFolders(str(self.spool), str(self.spool)),
            "n1",
            BootedHost("first", "host-7"),
            suite,
            records,
            {},
        )

    def publish(self, limit: float = 20) -> int:
        return commands.publish_command(["--config", str(self.path), "--limit", str(limit)])

    @property
    def letter(self) -> Json:
        found: Json = json.loads((self.mailbox / "n1.json").read_text())
        return found


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def one(check: str, verdict: str, latched: bool = False, moment: float = 1.0) -> Json:
    return record(check, "n1", time=moment, verdict=verdict, reason="why", context={"latched": latched})


def test_the_letter_has_what_did_not_pass_and_what_is_latched(node: Node) -> None:
    xid = one("gpu_xid", "fail", latched=True)
    node.save("periodic", one("munge", "pass"), one("memory", "warn"), one("gpu_count", "skipped"), xid)
    node.save("periodic", one("munge", "pass"), one("disk", "error"))
    node.save("prolog", one("gpu_devices", "unjudged"), xid)
    assert node.publish() == 0
    assert [record["check"] for record in node.letter["records"]] == ["gpu_xid", "disk", "gpu_devices"]
    assert node.letter["counts"] == {"pass": 1, "error": 1, "unjudged": 1, "fail": 1}
    assert set(node.letter["suites"]) == {"periodic", "prolog"}
    assert (node.letter["node"], node.letter["boot_id"]) == ("n1", "first")


def test_it_is_private_and_nothing_else_is_left_beside_it(node: Node) -> None:
    node.save("periodic", one("munge", "pass"))
    node.publish()
    assert [path.name for path in node.mailbox.iterdir()] == ["n1.json"]
    assert (node.mailbox / "n1.json").stat().st_mode & 0o777 == 0o600


def test_no_news_is_not_written(node: Node) -> None:
    node.save("periodic", one("disk", "error"))
    node.publish()
    before = node.letter["time"]
    node.save("periodic", one("disk", "error", moment=2.0))
    node.publish()
    assert node.letter["time"] == before
    node.save("periodic", one("disk", "fail"))
    node.publish()
    assert node.letter["time"] > before


@pytest.mark.parametrize("age", [601.0, -60.0])
def test_an_old_letter_and_one_from_the_future_are_written_again(node: Node, age: float) -> None:
    node.save("periodic", one("disk", "error"))
    node.publish()
    stale = {**node.letter, "time": time.time() - age}
    (node.mailbox / "n1.json").write_text(json.dumps(stale))
    node.publish()
    assert node.letter["time"] != stale["time"]


def test_a_damaged_state_is_told_to_the_reconciler(node: Node) -> None:
    node.spool.mkdir()
    (node.spool / "state.json").write_text("{")
    assert node.publish() == 0
    assert "no JSON" in node.letter["problem"]


def test_a_share_that_hangs_holds_nobody_and_no_second_one_waits_for_it(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    node.save("periodic", one("disk", "error"))
    os.mkfifo(node.mailbox / "n1.json")
    start = time.monotonic()
    assert node.publish(limit=0.5) == 1
    assert time.monotonic() - start < patience(60)
    assert "not finished within 0.5 s" in capsys.readouterr().err
    with (node.spool / commands.LOCK).open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert node.publish() == 1
    assert "an earlier one still waits" in capsys.readouterr().err


def test_a_mailbox_that_is_not_there_is_told(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.mailbox.rmdir()
    assert node.publish() == 1
    assert str(node.mailbox) in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_root_writes_as_the_owner_of_the_mailbox() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        node = Node(Path(folder))
        node.write(mailbox_user=OTHER)
        os.chown(node.mailbox, pwd.getpwnam(OTHER).pw_uid, -1)
        node.save("periodic", one("disk", "error"))
        assert node.publish() == 0
        assert (node.mailbox / "n1.json").owner() == OTHER


def test_a_user_that_does_not_exist_is_told(node: Node) -> None:
    node.write(mailbox_user="nobody-of-that-name")
    assert node.publish() == (1 if os.geteuid() == 0 else 0)


@pytest.mark.parametrize("text", ['{"schema": 1, "node": "n1"}', "{"])
def test_without_a_mailbox_or_a_configuration_it_says_so(
    node: Node, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    node.path.write_text(text)
    assert node.publish() == 1
    assert capsys.readouterr().err.startswith("hpcai-agent publish: ")


def test_latches_are_shown_and_cleared_one_by_one(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.save("periodic", one("gpu_xid", "fail", latched=True), one("infiniband_flaps", "fail", latched=True))
    words = ["--config", str(node.path)]
    assert commands.latch_command(words) == 0
    keys = [json.loads(line)["key"] for line in capsys.readouterr().out.splitlines()]
    assert [key.partition(":")[0] for key in keys] == ["gpu_xid", "infiniband_flaps"]
    assert commands.latch_command([*words, "--clear", keys[0]]) == 0
    assert commands.latch_command([*words, "--clear", keys[0]]) == 1
    assert list(agent_state.load(str(node.spool), "n1", BootedHost("first", ""))[0]["latched"]) == [keys[1]]
    assert commands.latch_command([*words, "--clear", "all"]) == 0
    assert commands.latch_command(words) == 0


def test_what_was_cleared_is_no_fault_again_before_it_happens_again(node: Node) -> None:
    """The kernel's log still has the old message, and its window the old counts."""
    xid = one("gpu_xid", "fail", latched=True)
    kept = {"infiniband_flaps": {"mlx5_0": [[1.0, 9]]}, "gpu_idle": True}
    folders = agent_state.StateFolders(str(node.spool), str(node.spool))
    agent_state.save(
        folders, "n1", BootedHost("first", ""), "periodic", [xid, one("infiniband_flaps", "fail", latched=True)], kept
    )
    assert commands.latch_command(["--config", str(node.path), "--clear", "all"]) == 0
    now = agent_state.load(str(node.spool), "n1", BootedHost("first", ""))[0]["kept"]
    assert sorted(now) == [agent_state.FORGIVEN, "gpu_idle"]
    assert [agent_state.over(now[agent_state.FORGIVEN], xid, last) for last in (1.0, time.time() + 9, None)] == [
        True,
        False,
        False,
    ]
    assert not agent_state.over("damaged", xid, 1.0)


def test_what_a_killed_publisher_left_is_removed_and_nothing_of_others(node: Node) -> None:
    for name in (".n1.json.4711", ".n10.json.4711", "n2.json"):
        (node.mailbox / name).write_text("half")
    node.save("periodic", one("disk", "error"))
    assert node.publish() == 0
    assert sorted(path.name for path in node.mailbox.iterdir()) == [".n10.json.4711", "n1.json", "n2.json"]


def test_no_user_can_hold_the_locks_of_the_agent(node: Node) -> None:
    """A lock for reading needs no more than to read the file, and keeps every writer waiting."""
    node.spool.mkdir()
    for name in ("lock", commands.LOCK):
        (node.spool / name).touch(mode=0o644)
    node.save("periodic", one("disk", "error"))
    assert node.publish() == 0
    assert {(node.spool / name).stat().st_mode & 0o777 for name in ("lock", commands.LOCK)} == {0o600}


def test_faults_of_two_parts_and_of_two_codes_are_two() -> None:
    found = {
        agent_state.key(record("gpu_xid", "n1", time=1.0, verdict="fail", scope={"gpu": gpu}, context={"code": code}))
        for gpu in ([1], [2])
        for code in (48, 79)
    }
    assert len(found) == 4


def test_the_number_of_latches_is_bounded() -> None:
    state = agent_state.fresh("n1", BootedHost())
    many = [one(f"check-{number}", "fail", latched=True) for number in range(agent_state.MOST + 9)]
    assert len(agent_state.merge(state, "periodic", 1.0, many, {})["latched"]) == agent_state.MOST


def test_suites_that_end_at_the_same_moment_lose_nothing_of_each_other(node: Node) -> None:
    def saver(number: int) -> t.Callable[[runner.Say], None]:
        found = one(f"check-{number}", "fail", latched=True)
        folders = agent_state.StateFolders(str(node.spool), str(node.spool))
        place = (folders, "n1", BootedHost("first", "host-7"), f"suite-{number}", [found], {f"kept-{number}": number})
        return lambda say: [agent_state.save(*place) for _again in range(5)] and None

    children = [runner.Child(saver(number)) for number in range(8)]
    for child in children:
        assert child.listen(time.monotonic() + 60) is None
        child.end()
    state, problem = agent_state.load(str(node.spool), "n1", BootedHost("first", "host-7"))
    assert (problem, len(state["latched"]), len(state["suites"]), len(state["kept"])) == ("", 8, 8, 8)


def test_what_a_killed_one_left_is_cleared_away(node: Node) -> None:
    node.save("prolog", one("munge", "pass"))
    (node.spool / ".state.json.4711").write_text("half")
    (node.spool / "records/.prolog-1.jsonl.4711").write_text("half")
    node.save("prolog", one("munge", "pass"))
    assert not list(node.spool.rglob(".*"))


@pytest.mark.parametrize(
    ("before", "now", "kept"), [("a", "b", False), ("a", "a", True), ("", "b", True), ("a", "", True)]
)
def test_only_another_boot_that_is_known_clears_what_is_latched(before: str, now: str, kept: bool) -> None:
    state = agent_state.merge(
        agent_state.fresh("n1", BootedHost(before)), "periodic", 1.0, [one("x", "fail", latched=True)], {"n": 1}
    )
    found, problem = agent_state.read(json.dumps(state), "n1", BootedHost(now))
    assert (bool(found["latched"]), bool(found["kept"]), problem) == (kept, kept, "")


def pool(*pairs: tuple[str, str]) -> bytes:
    return b"".join(key.encode().ljust(512, b"\0") + value.encode().ljust(2048, b"\0") for key, value in pairs)


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (pool(("HostName", "x"), ("PhysicalHostNameFullyQualified", "CO4SCH101122334")), "CO4SCH101122334"),
        (pool(("PhysicalHostName", "short"), ("PhysicalHostNameFullyQualified", "long")), "long"),
        (pool(("PhysicalHostName", "short"), ("PhysicalHostNameFullyQualified", "")), "short"),
        (pool(("PhysicalHostName", "short"))[:-1], ""),
        (b"", ""),
        (b"\xff" * 2560, ""),
    ],
)
def test_the_physical_host_is_read_from_the_pool(tmp_path: Path, data: bytes, want: str) -> None:
    (tmp_path / "pool").write_bytes(data)
    assert agent_state.host(str(tmp_path / "none"), str(tmp_path / "pool")) == BootedHost("", want)


def test_a_machine_without_either_is_unknown(tmp_path: Path) -> None:
    assert agent_state.host(str(tmp_path), str(tmp_path / "pool")) == BootedHost("", "")


def test_a_child_that_says_nonsense_says_nothing() -> None:
    def work(say: runner.Say) -> None:
        say({"number": float("nan"), "text": "\ud800"})

    child = runner.Child(work)
    try:
        assert child.listen(time.monotonic() + 5) == [{"number": None, "text": "\ud800"}]
        assert child.listen(time.monotonic() + 5) is None
    finally:
        child.end()


def test_a_child_that_never_stops_talking_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_LARGEST", 1 << 16)

    def work(say: runner.Say) -> None:
        while True:
            say({"text": "x" * 1000})

    child = runner.Child(work)
    try:
        while child.listen(time.monotonic() + 5):
            pass
        assert child.listen(time.monotonic() + 5) is None
    finally:
        child.end()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema": 2}, "schema 1"),
        ({"node": "../n1"}, "host name"),
        ({"node": None}, "host name"),
        ({"paths": "/"}, "paths"),
        ({"paths": [1]}, "paths"),
        ({"spool": "spool"}, "absolute"),
        ({"tools": {"nvidia-smi": "/x"}}, "nvidia-smi"),
        ({"profile": {"gpu": {"count": True}}}, "gpu.count"),
        ({"profile": {"gpu": {"count": -8}}}, "gpu.count"),
        ({"profile": {"gpu": 8}}, "profile.gpu"),
        ({"profile": {"expect": {}}}, "expect"),
        ({"profile": {"expect": [{"check": "gpu_count"}]}}, "lacks"),
        ({"suites": {"prolog": {"budget": 0}}}, "budget"),
        ({"suites": {"prolog": {"budgets": 3}}}, "suites.prolog"),
        ({"checks": {"gpu_xid": 3}}, "checks"),
    ],
)
def test_a_configuration_that_means_nothing_is_refused(change: Json, told: str) -> None:
    with pytest.raises(check.ConfigError, match=told):
        check.check({"schema": 1, "node": "n1", **change})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_no_user_reads_of_others_what_the_agent_saw_of_their_processes() -> None:
    """Also not what an older agent left; what a certification reads as an ordinary user has no names in it."""
    found = {"samples": [{"pid": 7, "user": "ada", "program": "secret-model"}], "evidence": "7 secret-model"}
    entry = record("leftover_processes", "n1", time=1.0, verdict="warn", blame="software", reason="1 process", **found)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        old = Path(folder, "spool/records/epilog-1.jsonl")
        old.parent.mkdir(parents=True)
        old.write_text("secret-model")
        home = str(Path(folder, "run"))
        agent_state.save(
            agent_state.StateFolders(home, str(Path(folder, "spool"))), "n1", BootedHost("a", ""), "epilog", [entry], {}
        )
        script = (
            "import os, pathlib, sys\n"
            "for root, folders, files in os.walk(sys.argv[1]):\n"
            "    for name in files:\n"
            "        try: print(name, pathlib.Path(root, name).read_text())\n"
            "        except OSError as exc: print(name, exc.strerror)\n"
        )
        other = pwd.getpwnam(OTHER).pw_uid
        done = subprocess.run(
            ["/usr/bin/python3", "-IS", "-c", script, folder], user=other, capture_output=True, text=True, check=True
        )
        assert "secret" not in done.stdout and "ada" not in done.stdout
        assert "state.json Permission denied" in done.stdout and "1 process" in done.stdout
        assert not Path(folder, "spool/records").stat().st_mode & 0o077
        assert "secret-model" in json.dumps(agent_state.load(home, "n1", BootedHost("a", ""))[0])
