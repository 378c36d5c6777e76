# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import state, text
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.state import SlurmReader

FIXTURES = Path(__file__).parents[3] / "fixtures" / "slurm"
NODES_JSON = {
    "22.05": "sinfo-22.05.json",
    "24.11": "scontrol-nodes-24.11.json",
    "26.05": "scontrol-nodes-26.05.json",
}
RELEASES = list(NODES_JSON)
FAR = {"set": True, "infinite": False, "number": 5}


def captured(name: str) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[None]:
    """The captures were made in UTC, and only text holds times as text."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("release", RELEASES)
def test_json_and_text_say_the_same_of_nodes(release: str) -> None:
    found = state.nodes_from_json(captured(NODES_JSON[release]))
    assert found == state.nodes_from_text(captured(f"scontrol-nodes-{release}.txt"))
    assert [(n["name"], n["flags"], n["available"], n["reason"], n["reason_user"]) for n in found] == [
        ("c1", [], True, "", None),
        ("c2", ["DRAIN"], False, "ops: cable swap", "root"),
        ("c3", ["DRAIN"], False, "hpcai:munge:key differs from a=b", "root"),
        ("far1", ["NOT_RESPONDING"], False, "", None),
    ]
    assert found[0]["features"] == ["cpu", "avx"]
    assert (found[0]["partitions"], found[0]["gres"], found[0]["memory_mb"]) == (["main", "debug"], "gpu:a100:2", 1000)
    assert found[1]["reason_time"] in {"2026-11-21T07:41:27", "2026-11-21T07:45:15", "2026-11-21T18:38:13"}


@pytest.mark.parametrize(
    ("states", "base", "flags", "available"),
    [
        (["IDLE"], "IDLE", [], True),
        (["mixed", "CLOUD"], "MIXED", ["CLOUD"], True),
        (["down*"], "DOWN", ["NOT_RESPONDING"], False),
        (["IDLE", "MAINTENANCE", "RESERVED"], "IDLE", ["MAINTENANCE", "RESERVED"], False),
        (["IDLE", "DRAIN", "INVALID_REG"], "IDLE", ["DRAIN", "INVALID_REG"], False),
        (["DRAIN", "ALLOCATED"], "ALLOCATED", ["DRAIN"], False),
        (["IDLE", "POWERED_DOWN"], "IDLE", ["POWERED_DOWN"], False),
        (["FUTURE"], "FUTURE", [], False),
        ([], "UNKNOWN", [], False),
    ],
)
def test_states_of_all_releases(states: list[str], base: str, flags: list[str], available: bool) -> None:
    found = state.nodes_from_json(json.dumps({"nodes": [{"name": "c1", "state": states}]}))[0]
    assert (found["state"], found["flags"], found["available"]) == (base, flags, available)


@pytest.mark.parametrize(
    ("release", "states", "nodes"),
    [
        ("22.05", ["COMPLETED", "FAILED", "PENDING", "PENDING"], [["c1"], ["c1"], [], []]),
        ("24.11", ["RUNNING", "PENDING"], [["c1"], []]),
        ("26.05", ["RUNNING", "PENDING"], [["c1"], []]),
    ],
)
def test_jobs(release: str, states: list[str], nodes: list[list[str]]) -> None:
    found = state.jobs_from_json(captured(f"squeue-{release}.json"))
    assert ([job["state"] for job in found], [job["nodes"] for job in found]) == (states, nodes)
    assert found[-1]["name"] == "wide one"
    assert (found[-1]["node_count"], found[-1]["start"], found[-1]["account"]) == (2, None, "research")


def test_jobs_as_rows_keep_any_name() -> None:
    row = ["7", "anna", "lab", "main", "RUNNING", "None", "c[1-2]", "2", "2026-01-05T10:00:00", "N/A", "a|b, c"]
    found = state.jobs_from_text(text.SEPARATOR.join(row) + "\nslurm_load_jobs: what else is printed\n")
    assert [(job["job_id"], job["name"], job["nodes"], job["reason"]) for job in found] == [
        (7, "a|b, c", ["c1", "c2"], None)
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_partitions(release: str) -> None:
    found = state.partitions(captured(f"scontrol-partitions-{release}.txt"))
    assert [(p["name"], p["default"], p["max_time"]) for p in found] == [("main", True, 86400), ("debug", False, 1800)]
    assert [p["nodes"] for p in found] == [["c1", "c2", "c3"], ["c1", "far1"]]


@pytest.mark.parametrize(
    ("printed", "up"),
    [
        (captured("scontrol-ping-22.05.txt"), [True]),
        (captured("scontrol-ping-24.11.txt"), [True]),
        (captured("scontrol-ping-26.05.txt"), [True]),
        ("Slurmctld(primary) at a is DOWN\nSlurmctld(backup1) at b is UP\n", [False, True]),
    ],
)
def test_ping(printed: str, up: list[bool]) -> None:
    assert [controller["up"] for controller in state.controllers(printed)] == up


@pytest.mark.parametrize(
    ("printed", "version", "release"),
    [("slurm-wlm 22.05.8\n", "22.05.8", (22, 5)), ("slurm 25.11.0-0rc1", "25.11.0-0rc1", (25, 11))],
)
def test_versions(printed: str, version: str, release: tuple[int, int]) -> None:
    assert (state.version(printed), state.release(version)) == (version, release)


@pytest.mark.parametrize(
    ("value", "number"),
    [(5, 5), ("5", 5), (FAR, 5), ({**FAR, "infinite": True}, None), ({"set": False, "number": 5}, None), (None, None)],
)
def test_numbers(value: object, number: int | None) -> None:
    assert text.number(value) == number


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("00:30:00", 1800), ("1-00:00:00", 86400), ("10:00", 600), ("UNLIMITED", None), ("", None)],
)
def test_seconds(value: str, seconds: int | None) -> None:
    assert text.seconds(value) == seconds


@pytest.mark.parametrize("printed", ["", "[]", "{}", '{"nodes": [1]}', '{"nodes": [], "errors": [{"error": "away"}]}'])
def test_what_is_no_answer_is_refused(printed: str) -> None:
    with pytest.raises(text.SlurmError):
        state.nodes_from_json(printed)


class Fake:
    """Answers the command lines it knows by their beginning; everything else fails."""

    def __init__(self, answers: dict[str, tuple[int, str, str]]) -> None:
        self.answers, self.asked = answers, t.cast("list[str]", [])

    def __call__(self, argv: list[str]) -> tuple[int, str, str]:
        self.asked.append(" ".join(argv))
        known = [answer for start, answer in self.answers.items() if " ".join(argv).startswith(start)]
        return known[0] if known else (1, "", "Unable to contact slurm controller")


OLD = {"scontrol --version": (0, "slurm-wlm 22.05.8\n", "")}
NEW = {"scontrol --version": (0, "slurm 24.11.5\n", "")}


@pytest.mark.parametrize(
    "answers",
    [
        {**OLD, "sinfo -a --json": (0, captured("sinfo-22.05.json"), "")},
        {**OLD, "scontrol show node -a -o": (0, captured("scontrol-nodes-22.05.txt"), "")},
        {**NEW, "scontrol show nodes --json": (0, captured("scontrol-nodes-24.11.json"), "")},
        {**NEW, "scontrol show node -a -o": (0, captured("scontrol-nodes-24.11.txt"), "")},
    ],
    ids=["22.05 JSON", "22.05 text", "24.11 JSON", "24.11 text"],
)
def test_reader_finds_a_way_to_the_nodes(answers: dict[str, tuple[int, str, str]]) -> None:
    assert [node["name"] for node in SlurmReader(Fake(answers)).nodes()] == ["c1", "c2", "c3", "far1"]


@pytest.mark.parametrize(("release", "ids"), [("22.05", [3, 4]), ("24.11", [3, 4])])
def test_reader_returns_only_jobs_that_wait_or_run(release: str, ids: list[int]) -> None:
    reader = SlurmReader(Fake({"squeue": (0, captured(f"squeue-{release}.json"), "")}))
    assert [job["job_id"] for job in reader.jobs()] == ids


def test_reader_takes_a_controller_that_is_down_for_an_answer() -> None:
    down = SlurmReader(Fake({"scontrol ping": (1, "Slurmctld(primary) at ctl is DOWN\n", "")}))
    assert down.controllers() == [{"role": "primary", "host": "ctl", "up": False}]


@pytest.mark.parametrize("ask", ["version", "controllers", "nodes", "partitions", "jobs"])
def test_reader_says_what_came_back(ask: str) -> None:
    with pytest.raises(text.SlurmError, match="Unable to contact"):
        getattr(SlurmReader(Fake({} if ask != "nodes" else NEW)), ask)()
