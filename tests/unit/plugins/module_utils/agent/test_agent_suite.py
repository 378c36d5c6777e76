# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpcai-agent suite: whatever a check does, the suite ends in time and tells the truth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import types
import typing as t
from pathlib import Path

import pytest
from patience import patience

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import registry, suite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import state as agent_state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import (
    SUITES,
    AgentCheck,
    BootedHost,
    Context,
)

Json = t.Dict[str, t.Any]
# Found again in the command line of a process that this test started.
# A machine that does other things as well is late, but never by the hour for which the checks here hang.
SLACK = patience(60)
MARK = f"agent-suite-{os.getpid()}"


def good(context: Context) -> list[Json]:
    return [context.record("good", verdict="pass")]


def faulty(context: Context) -> list[Json]:
    return [context.record("faulty", verdict="fail", blame="hardware", reason="broken GPU")]


def misconfigured(context: Context) -> list[Json]:
    return [context.record("misconfigured", verdict="fail", blame="config", reason="a bad setting")]


def hanging(context: Context) -> list[Json]:
    """Ignore what asks politely, as a process in an uninterruptible read does."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(3600)
    return []


def starting(context: Context) -> list[Json]:
    """Hang in a program of its own session, which writes where we would read."""
    line = f"trap '' TERM; echo noise; sleep 3600; : {MARK}"
    subprocess.run(["sh", "-c", line], check=False, start_new_session=True)
    return []


def slow(context: Context) -> list[Json]:
    time.sleep(0.5)
    return [context.record("slow", verdict="pass")]


def dying(context: Context) -> list[Json]:
    os.kill(os.getpid(), signal.SIGKILL)
    return []


def raising(context: Context) -> list[Json]:
    raise RuntimeError("a bug")


def leaving(context: Context) -> list[Json]:
    raise SystemExit(0)


def silent(context: Context) -> list[Json]:
    return []


def talking(context: Context) -> list[Json]:
    """Write where Slurm reads, as some library does."""
    for number in (1, 2):
        os.write(number, b'{"end": "talking", "records": []}\nnonsense\n')
    return good(context)


def lying(context: Context) -> t.Any:
    return [{"check": "lying", "verdict": "pass"}]


def latching(context: Context) -> list[Json]:
    seen = (context.kept("seen") or 0) + 1
    context.keep("seen", seen)
    if seen > 1:
        return [context.record("latching", verdict="pass")]
    return [context.record("latching", verdict="fail", reason="XID 79", latched=True, code=79, action="isolate")]


FAKES = [good, faulty, misconfigured, hanging, starting, dying, raising, leaving, silent, talking, lying, latching]


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("fakes")
    found = {}
    for number, one in enumerate(FAKES):
        setattr(module, one.__name__, one)
        found[one.__name__] = AgentCheck(f"fakes:{one.__name__}", number, patience(1), SUITES)
    monkeypatch.setitem(sys.modules, f"{registry.HOME}.fakes", module)
    monkeypatch.setattr(registry, "CHECKS", {**found, "latches": registry.CHECKS["latches"]})


class Agent:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.config, self._capsys = folder / "agent.json", capsys
        self.spool = folder / "spool"
        self.write()

    def write(self, **more: t.Any) -> None:
        self.config.write_text(json.dumps({"schema": 1, "node": "n1", "spool": str(self.spool), **more}))

    def run(self, name: str, *names: str, budget: float | None = None) -> tuple[int, list[Json], float]:
        start = time.monotonic()
        words = [word for one in names for word in ("--check", one)]
        limit = ["--budget", str(budget)] if budget else []
        status = suite.main([name, "--config", str(self.config), "--json", *words, *limit])
        lines = self._capsys.readouterr().out.splitlines()
        return status, [json.loads(line) for line in lines], time.monotonic() - start


@pytest.fixture
def agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Agent:
    return Agent(tmp_path, capsys)


def verdicts(records: t.Sequence[Json]) -> list[tuple[str, str, str | None]]:
    return [(one["check"], one["verdict"], one["class"]) for one in records]


@pytest.mark.parametrize("broken", ["hanging", "starting", "dying", "raising", "leaving", "silent", "lying"])
def test_a_broken_check_is_an_error_of_its_own_and_takes_no_other_with_it(agent: Agent, broken: str) -> None:
    status, records, seconds = agent.run("prolog", "good", broken, "talking", budget=patience(3))
    assert verdicts(records) == [("good", "pass", None), (broken, "error", "infra"), ("good", "pass", None)]
    assert records[1]["reason"]
    assert status == 0
    assert seconds < patience(3) + SLACK


@pytest.mark.parametrize("name", SUITES)
def test_it_ends_within_its_budget_when_every_check_hangs(agent: Agent, name: str) -> None:
    status, records, seconds = agent.run(name, "hanging", "starting", "faulty", "good", budget=patience(1.6))
    assert seconds < patience(1.6) + SLACK
    assert verdicts(records)[0] == ("hanging", "error", "infra")
    assert {one["check"] for one in records} == {"hanging", "starting", "faulty", "good"}
    assert all(one["verdict"] == "error" and "not finished within" in one["reason"] for one in records)
    assert status == 0


def test_a_check_has_as_much_longer_as_its_node_is_busier(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that boots is slow: a verdict is no matter of the clock."""
    monkeypatch.setitem(registry.CHECKS, "slow", AgentCheck("fakes:slow", 1, 0.1, SUITES))
    monkeypatch.setattr(sys.modules[f"{registry.HOME}.fakes"], "slow", slow, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (4 * patience(300), 0, 0))
    assert verdicts(agent.run("boot", "slow")[1]) == [("slow", "pass", None)]
    monkeypatch.setattr(os, "getloadavg", lambda: (3, 0, 0))
    _status, records, _seconds = agent.run("boot", "slow")
    assert verdicts(records) == [("slow", "error", "infra")] and records[0]["reason"] == "not finished within 0.1 s"


def test_what_hangs_is_killed_with_all_that_it_started(agent: Agent) -> None:
    agent.run("prolog", "starting")
    assert MARK not in " ".join(_command(path) for path in Path("/proc").glob("[0-9]*/cmdline"))


def _command(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def test_a_reader_of_our_output_does_not_wait_for_what_hangs(agent: Agent) -> None:
    """Slurm reads a prolog's output to its end; a child that held it would hold the job."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    os.set_blocking(reader, False)
    saved = os.dup(1)
    try:
        os.dup2(writer, 1)
        agent.run("prolog", "hanging")
    finally:
        os.dup2(saved, 1)
        os.close(writer)
        os.close(saved)
    assert os.read(reader, 100) == b""
    os.close(reader)


@pytest.mark.parametrize(
    ("name", "check", "status"),
    [
        *((name, "faulty", 1) for name in ("boot", "prolog", "epilog")),
        *((name, "faulty", 0) for name in ("periodic", "full")),
        *((name, "misconfigured", 0) for name in SUITES),
        *((name, "raising", 0) for name in SUITES),
        *((name, "good", 0) for name in SUITES),
    ],
)
def test_exit_status_is_1_for_hardware_where_a_job_would_suffer_and_for_nothing_else(
    agent: Agent, name: str, check: str, status: int
) -> None:
    assert agent.run(name, check)[0] == status


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', '{"schema": 1, "node": "n1", "spol": "/x"}'])
@pytest.mark.parametrize(("name", "status"), [("prolog", 0), ("epilog", 0), ("boot", 2), ("periodic", 2), ("full", 2)])
def test_a_broken_configuration_drains_nobody_in_a_prolog_and_is_told_elsewhere(
    agent: Agent, name: str, status: int, text: str
) -> None:
    agent.config.write_text(text)
    found, records, _seconds = agent.run(name)
    assert found == status
    assert verdicts(records) == [("agent", "error", "infra")]
    assert str(agent.config) in records[0]["reason"]


def test_no_process_can_be_made(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    status, records, _seconds = agent.run("prolog", "good")
    assert (status, verdicts(records)) == (0, [("agent", "error", "infra")])


def test_what_is_latched_fails_every_prolog_until_the_node_boots(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    boot = tmp_path / "sys/kernel/random"
    boot.mkdir(parents=True)
    (boot / "boot_id").write_text("first\n")
    agent.write(proc=str(tmp_path))
    assert agent.run("periodic", "latching")[1][0]["verdict"] == "fail"
    assert agent.run("periodic", "latching")[1][0]["verdict"] == "pass"
    for _again in range(2):
        status, records, _seconds = agent.run("prolog", "latches")
        assert (status, records[0]["reason"], records[0]["context"]["code"]) == (1, "XID 79", 79)
    (boot / "boot_id").write_text("second\n")
    assert agent.run("prolog", "latches")[0] == 0


def test_a_latched_fault_that_is_seen_again_is_told_once(agent: Agent) -> None:
    _status, first, _seconds = agent.run("periodic", "latching")
    state = json.loads((agent.spool / "state.json").read_text())
    (agent.spool / "state.json").write_text(json.dumps({**state, "kept": {}}))
    _status, records, _seconds = agent.run("periodic", "latches", "latching")
    assert [(one["check"], one["time"]) for one in records] == [("latching", first[0]["time"])]


def test_a_damaged_state_is_no_pass_and_is_replaced(agent: Agent) -> None:
    agent.run("periodic", "latching")
    (agent.spool / "state.json").write_text('{"schema": 1, "latched": ')
    status, records, _seconds = agent.run("prolog", "latches")
    assert (status, verdicts(records)) == (0, [("latches", "error", "infra")])
    assert verdicts(agent.run("prolog", "latches")[1]) == [("latches", "pass", None)]


def test_records_are_kept_and_their_number_is_bounded(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_state, "KEPT", 3)
    for _again in range(5):
        agent.run("prolog", "good")
    agent.run("periodic", "good")
    names = sorted(path.name.partition("-")[0] for path in (agent.spool / "records").iterdir())
    assert names == ["periodic", *["prolog"] * 3]
    newest = max((agent.spool / "records").glob("prolog-*"))
    assert [json.loads(line)["check"] for line in newest.read_text().splitlines()] == ["good"]


def test_a_spool_that_cannot_be_written_is_told(agent: Agent) -> None:
    agent.spool.write_text("a file in the way")
    status, records, _seconds = agent.run("prolog", "good")
    assert status == 0
    assert ("spool", "error", "infra") in verdicts(records)


def test_a_full_disk_silences_no_node(agent: Agent, tmp_path: Path) -> None:
    """What is known of this boot lies in memory, and only the records of many runs beside the disk's other files."""
    agent.write(state=str(tmp_path / "run"))
    agent.spool.write_text("no room for a directory")
    status, records, _seconds = agent.run("prolog", "good")
    assert (status, ("spool", "error", "infra") in verdicts(records)) == (0, True)
    state, problem = agent_state.load(str(tmp_path / "run"), "n1", BootedHost("", ""))
    assert (problem, list(state["suites"])) == ("", ["prolog"])


def test_a_spool_that_hangs_does_not_hold_the_prolog(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_state, "save", lambda *dummy: time.sleep(600))
    status, records, seconds = agent.run("prolog", "good", budget=patience(1.5))
    assert (status, verdicts(records)) == (0, [("good", "pass", None), ("spool", "error", "infra")])
    assert seconds < patience(1.5) + SLACK


def test_a_state_that_hangs_costs_the_checks_nothing_but_itself(agent: Agent) -> None:
    agent.spool.mkdir()
    os.mkfifo(agent.spool / "state.json")
    status, records, seconds = agent.run("prolog", "latches", "good", "faulty", budget=patience(3))
    assert verdicts(records)[1:3] == [("good", "pass", None), ("faulty", "fail", "hardware")]
    assert (status, verdicts(records)[0], "not finished" in records[0]["reason"]) == (
        1,
        ("latches", "error", "infra"),
        True,
    )
    assert seconds < patience(3) + SLACK


@pytest.mark.parametrize("budget", ["nan", "inf", "0.5", "-3"])
def test_a_budget_that_is_none_is_refused(agent: Agent, budget: str) -> None:
    assert suite.main(["periodic", "--config", str(agent.config), f"--budget={budget}"]) == 2


def test_an_unknown_check_is_refused(agent: Agent) -> None:
    agent.write(suites={"prolog": {"checks": ["good", "godo"]}})
    status, records, _seconds = agent.run("prolog")
    assert (status, records[0]["verdict"]) == (0, "error")
    assert "godo" in records[0]["reason"]


def test_the_configuration_chooses_checks_and_budget(agent: Agent) -> None:
    agent.write(suites={"periodic": {"checks": ["hanging"], "budget": patience(1.5)}})
    _status, records, seconds = agent.run("periodic")
    assert verdicts(records) == [("hanging", "error", "infra")]
    assert seconds < patience(1.5) + SLACK


def test_records_say_which_machine_they_are_of(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"{registry.HOME.rpartition('.')[0]}.agent.state.host"
    monkeypatch.setattr(place, lambda *dummy: BootedHost("b", "CO4SCH000000001"))
    _status, records, _seconds = agent.run("periodic", "good", "raising", "hanging")
    assert {one["context"]["physical_host"] for one in records} == {"CO4SCH000000001"}
    assert {one["node"] for one in records} == {"n1"}


def test_output_for_people_has_what_did_not_pass(agent: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["prolog", "--config", str(agent.config), "--check", "good", "--check", "faulty"]
    assert suite.main(words) == 1
    assert capsys.readouterr().out == (
        "fail faulty (hardware): broken GPU\n2 records, 1 of them neither pass nor skipped\n"
    )


@pytest.mark.parametrize(
    ("name", "blame", "status"),
    [
        ("prolog", "hardware", 1),
        ("epilog", "hardware", 1),
        ("boot", "fabric", 1),
        ("prolog", "fabric", 0),
        ("epilog", "fabric", 0),
        ("prolog", "config", 0),
        ("boot", "config", 0),
        ("periodic", "hardware", 0),
    ],
)
def test_only_what_the_node_itself_does_takes_it_from_its_jobs(name: str, blame: str, status: int) -> None:
    """A subnet manager that dies must not drain the whole fleet through its prologs."""
    assert suite.status(name, [{"verdict": "fail", "class": blame}]) == status
