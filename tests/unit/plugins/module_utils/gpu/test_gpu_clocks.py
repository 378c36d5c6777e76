# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clocks are set on an nvidia-smi of our own, which keeps what it is told as a driver does; never on a real one."""

from __future__ import annotations

import json
import marshal
import os
import typing as t
from pathlib import Path

import pytest
from stand_in import stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import CheckError, Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks import FIELDS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_apply import Record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.clocks_module import SPEC, perform
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import load

PROFILE = load("nd96asr_v4")["expect"]


class Node:
    """Two A100 that idle unlocked, and the means to ask for their clocks."""

    def __init__(self, folder: Path) -> None:
        self.state_file, self.record = folder / "state", folder / "run/gpu_clocks.json"
        self.program = stand_in(folder / "nvidia-smi", "nvidia_smi_clocks.py", " -ES")
        gpu: Json = {"max": {"graphics": 1410, "memory": 1215}, "idle": {"graphics": 210, "memory": 1215}}
        gpu |= {
            "default": {"graphics": 1095, "memory": 1215},
            "app": {},
            "lock": {},
            "clip": {},
            "app_clip": 0,
            "less": {},
        }
        gpu |= {"persistence": False, "reasons": 1, "unsupported": [], "follows": True}
        gpus = [{**json.loads(json.dumps(gpu)), "index": i, "bus": f"0000000{i + 1}:00:00.0"} for i in range(2)]
        rest = {"driver": "550.90.07", "calls": [], "hangs": False, "broken": [], "denied": False, "unknown_fields": []}
        rest |= {"works_for": 0, "unsupported_text": "Setting this is not supported for GPU"}
        self.write({**rest, "gpus": gpus, "unsupported_status": 0})
        os.environ["FAKE_SMI"] = str(self.state_file)

    def read(self) -> Json:
        return t.cast("Json", marshal.loads(self.state_file.read_bytes()))

    def write(self, state: Json) -> None:
        self.state_file.write_bytes(marshal.dumps(state))

    def set(self, **changes: t.Any) -> None:
        self.write({**self.read(), **changes})

    def gpu(self, *indexes: int, **changes: t.Any) -> None:
        state = self.read()
        for index in indexes or (0, 1):
            state["gpus"][index].update(changes)
        self.write(state)

    def ask(self, dry: bool = False, **options: t.Any) -> Json:
        given = {"program": str(self.program), "record": str(self.record), "settle": 0.1, "timeout": 20, "name": "n1"}
        defaults = {name: option.get("default") for name, option in SPEC.items()}
        return perform({**defaults, **given, **options}, dry)

    def sent(self) -> list[str]:
        """Return what was sent since the last look, without the queries."""
        state = self.read()
        self.write({**state, "calls": []})
        return [" ".join(words[1:]) for words in state["calls"] if words[0] == "-i"]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setenv("FAKE_SMI", "")
    return Node(tmp_path)


def everything(bus: str) -> list[str]:
    return [f"{bus} -pm 1", f"{bus} -lmc 1215,1215", f"{bus} -lgc 1410,1410"]


def test_check_mode_then_the_change_then_nothing(node: Node) -> None:
    promised = node.ask(dry=True)
    assert node.sent() == []
    assert not node.record.exists()
    done = node.ask(expect=PROFILE)
    assert node.sent() == everything("00000001:00:00.0") + everything("00000002:00:00.0")
    assert [one["changed"] for one in (promised, done)] == [True, True]
    assert promised["diff"] == done["diff"]
    assert promised["commands"] == done["commands"]
    assert (promised["check"]["verdict"], done["check"]["verdict"]) == ("skipped", "pass")
    for again in (node.ask(dry=True), node.ask()):
        assert (again["changed"], again["commands"]) == (False, [])
        assert again["diff"]["before"] == again["diff"]["after"] == done["diff"]["after"]
    assert node.sent() == []


def test_the_result_tells_what_each_gpu_became(node: Node) -> None:
    first = node.ask()["gpus"][0]
    assert first["before"] == {
        "persistence": False,
        "locked_graphics": None,
        "locked_memory": None,
        "application_graphics": 1095,
        "application_memory": 1215,
    }
    assert first["after"] == {**first["before"], "persistence": True, "locked_graphics": 1410, "locked_memory": 1215}
    assert first["requested"] == first["reached"] == first["supported"] == {"graphics": 1410, "memory": 1215}
    assert first["method"] == {"graphics": "locked", "memory": "locked"}
    assert (first["reasons"], first["problems"]) == (["gpu_idle"], [])


def test_a_lock_stands_in_for_what_the_profile_expects_of_that_clock(node: Node) -> None:
    check = node.ask(state="locked", graphics=1200, expect=PROFILE)["check"]
    assert check["verdict"] == "pass"
    assert {one["value"] for one in check["metrics"] if one["name"] == "graphics"} == {1200}
    node.gpu(less={"memory": 100})
    found = node.ask(state="locked", graphics=1200, expect=PROFILE)["check"]
    assert (found["verdict"], "memory" in found["reason"]) == ("fail", True)  # nobody gave that one


def test_only_the_chosen_gpus(node: Node) -> None:
    assert node.ask(devices=[1])["changed"]
    assert node.sent() == everything("00000002:00:00.0")
    absent = node.ask(devices=[1, 7])
    assert (absent["check"]["verdict"], absent["check"]["reason"]) == ("error", "there is no GPU 7")
    assert node.ask(devices=[7])["check"]["verdict"] == "error"


def test_a_clipped_clock_fails(node: Node) -> None:
    """The driver says that it set 1410 MHz."""
    node.gpu(1, clip={"graphics": 1200})
    for changed in (True, False):
        got = node.ask(expect=PROFILE)
        assert got["changed"] is changed
        check = got["check"]
        assert (check["verdict"], check["class"], check["scope"]) == ("fail", "config", {"gpu": [1]})
        assert check["reason"] == "GPU 1: graphics clock is 1200 MHz instead of 1410 MHz"


def test_a_clock_that_is_clipped_whichever_way_it_is_set(node: Node) -> None:
    """It was whole at first: the lock is tried again, then application clocks, then it is left at that."""
    node.ask()
    node.gpu(1, clip={"graphics": 1200}, app_clip=1200)
    got = node.ask()
    assert (got["changed"], got["check"]["verdict"]) == (True, "fail")
    assert got["gpus"][1]["method"]["graphics"] == "application"
    assert got["check"]["reason"] == "GPU 1: graphics clock is 1200 MHz instead of 1410 MHz"
    again = node.ask()
    assert (again["changed"], again["check"]["verdict"]) == (False, "fail")


def test_a_clock_that_is_hot_is_the_hardware_s_fault(node: Node) -> None:
    node.gpu(0, clip={"graphics": 1200}, reasons=0x20)
    check = node.ask()["check"]
    assert (check["verdict"], check["class"]) == ("fail", "hardware")
    assert check["reason"].endswith("instead of 1410 MHz, limited by sw_thermal_slowdown")


@pytest.mark.parametrize("less, verdict", [(2, "pass"), (15, "pass"), (16, "fail")])
def test_a_locked_memory_clock_reads_some_mhz_less(node: Node, less: int, verdict: str) -> None:
    node.gpu(less={"memory": less}, reasons=0)
    assert node.ask()["check"]["verdict"] == verdict


@pytest.mark.parametrize(
    "option, value, reason",
    [
        ("graphics", 1215, None),
        ("graphics", 2619, "graphics clock 2619 MHz is above the maximum of 1980 MHz; 2619 MHz is its memory clock"),
        ("graphics", 2000, "graphics clock 2000 MHz is above the maximum of 1980 MHz"),
        ("memory", 9999, "memory clock 9999 MHz is above the maximum of 2619 MHz"),
    ],
)
def test_a_clock_of_another_kind_is_not_sent(node: Node, option: str, value: int, reason: str | None) -> None:
    node.gpu(max={"graphics": 1980, "memory": 2619}, idle={"graphics": 345, "memory": 2619}, persistence=True)
    got = node.ask(state="locked", **{option: value})
    assert got["check"]["verdict"] == ("fail" if reason else "pass")
    assert (f"GPU 0: {reason}, " in got["check"]["reason"]) == bool(reason)
    assert node.sent() == ([] if reason else [f"0000000{i}:00:00.0 -lgc 1215,1215" for i in (1, 2)])


def test_locked_below_the_maximum(node: Node) -> None:
    node.ask()
    node.sent()
    got = node.ask(state="locked", graphics=1200)
    assert (got["changed"], got["check"]["verdict"]) == (True, "pass")
    assert got["gpus"][0]["after"]["locked_graphics"] == 1200
    assert [words.split(" ", 1)[1] for words in node.sent()] == ["-lgc 1200,1200"] * 2
    assert not node.ask(state="locked", graphics=1200)["changed"]
    assert node.ask()["changed"]


def test_what_somebody_undid_is_set_again(node: Node) -> None:
    node.ask()
    node.gpu(0, lock={})
    node.sent()
    got = node.ask()
    assert (got["changed"], got["check"]["verdict"]) == (True, "pass")
    assert node.sent() == ["00000001:00:00.0 -lgc 1410,1410"], "the memory clock is where it was"


def test_a_clock_that_is_held_down_is_no_clock_that_was_undone(node: Node) -> None:
    node.ask()
    node.gpu(0, clip={"graphics": 900}, reasons=0x4)
    node.sent()
    got = node.ask()
    assert (got["changed"], node.sent()) == (False, [])
    assert "limited by sw_power_cap" in got["check"]["reason"]


@pytest.mark.parametrize("change", ["boot", "driver", "text", "gone"])
def test_a_record_that_is_not_of_this_boot_and_driver(node: Node, change: str) -> None:
    node.ask()
    old = json.loads(node.record.read_text())
    if change == "gone":
        node.record.unlink()
    else:
        node.record.write_text("{" if change == "text" else json.dumps({**old, change: "other"}))
    got = node.ask()
    assert got["changed"], "what cannot be known is set"
    assert not node.ask()["changed"]


@pytest.mark.parametrize("status", [0, 3])
def test_an_old_driver_gets_application_clocks(node: Node, status: int) -> None:
    """nvidia-smi calls what is not supported a warning and ends with 0, or with 3."""
    node.set(unsupported_status=status)
    node.gpu(unsupported=["-lgc", "-lmc"], persistence=True)
    got = node.ask(expect=PROFILE)
    assert (got["changed"], got["check"]["verdict"]) == (True, "pass")
    assert [words.split(" ", 1)[1] for words in node.sent()] == ["-lmc 1215,1215", "-lgc 1410,1410"] * 2 + [
        "-ac 1215,1410"
    ] * 2
    first = got["gpus"][0]
    assert first["method"] == {"graphics": "application", "memory": "nothing"}
    assert (first["after"]["application_graphics"], first["reached"]["graphics"]) == (1410, 1410)
    again = node.ask(expect=PROFILE)
    assert (again["changed"], again["check"]["verdict"], node.sent()) == (False, "pass", [])
    node.gpu(app={})
    assert node.ask()["changed"], "application clocks can be queried, so it is seen when they are undone"
    assert node.ask(state="reset")["changed"]
    assert node.read()["gpus"][0]["app"] == {}
    assert not node.ask(state="reset")["changed"]


def test_a_driver_without_the_option_is_an_old_one(node: Node) -> None:
    node.program.write_text(node.program.read_text().replace('"-lgc", "-lmc"', '"-LGC", "-LMC"'))
    got = node.ask()
    assert (got["check"]["verdict"], got["gpus"][0]["method"]["graphics"]) == ("pass", "application")


def test_a_volta_has_no_memory_lock_and_needs_none(node: Node) -> None:
    node.gpu(unsupported=["-lmc"])
    got = node.ask()
    assert (got["check"]["verdict"], got["gpus"][0]["method"]) == ("pass", {"graphics": "locked", "memory": "nothing"})
    assert not node.ask()["changed"]


def test_a_gpu_that_can_do_nothing(node: Node) -> None:
    node.gpu(unsupported=["-lgc", "-lmc", "-ac"], default={}, persistence=None)
    got = node.ask()
    assert (got["changed"], got["check"]["verdict"], got["check"]["class"]) == (False, "error", "infra")
    assert (
        "GPU 0: this GPU lets its graphics clock be set in no way (status 3: not supported)" in got["check"]["reason"]
    )
    node.sent()
    assert (node.ask()["changed"], node.sent()) == (False, []), "it is not asked every time"


def test_a_lock_that_an_idle_gpu_does_not_show_gives_way_to_application_clocks(node: Node) -> None:
    node.gpu(follows=False, persistence=True)
    got = node.ask()
    assert (got["changed"], got["check"]["verdict"]) == (True, "pass")
    assert got["gpus"][0]["method"]["graphics"] == "application"
    assert node.read()["gpus"][0]["lock"] == {"memory": 1215}
    assert not node.ask()["changed"]


def test_a_lock_that_cannot_be_seen_is_no_pass(node: Node) -> None:
    node.gpu(follows=False, default={})
    for changed in (True, False):
        got = node.ask()
        assert (got["changed"], got["check"]["verdict"]) == (changed, "error")
        assert "cannot be told while it idles at 210 MHz instead of 1410 MHz" in got["check"]["reason"]
    assert got["gpus"][0]["method"]["graphics"] == "locked"
    node.gpu(follows=True, reasons=0)
    assert node.ask()["check"]["verdict"] == "pass", "at work it shows"


def test_without_root(node: Node) -> None:
    node.set(denied=True)
    got = node.ask()
    assert (got["changed"], got["check"]["verdict"], got["check"]["class"]) == (False, "error", "infra")
    assert (
        "does not have permission to change clocks for GPU 00000001:00:00.0.: this needs root" in got["check"]["reason"]
    )
    assert node.ask(state="reset")["check"]["verdict"] == "skipped", "there was nothing to give back"


def test_reset_undoes_everything(node: Node) -> None:
    before = node.read()["gpus"]
    node.ask()
    promised, done = node.ask(state="reset", dry=True), node.ask(state="reset")
    assert node.read()["gpus"] == before
    assert promised["diff"] == done["diff"]
    assert [promised["changed"], done["changed"], node.ask(state="reset")["changed"]] == [True, True, False]
    assert (done["check"]["verdict"], done["check"]["reason"]) == (
        "skipped",
        "the clocks were given back to the driver",
    )


def test_reset_leaves_persistence_that_was_there_before(node: Node) -> None:
    node.gpu(persistence=True)
    node.ask()
    node.ask(state="reset")
    assert [gpu["persistence"] for gpu in node.read()["gpus"]] == [True, True]


def test_reset_finds_a_lock_that_somebody_else_made(node: Node) -> None:
    node.gpu(0, lock={"graphics": 1410})
    got = node.ask(state="reset")
    assert got["changed"]
    assert node.sent() == ["00000001:00:00.0 -rmc", "00000001:00:00.0 -rgc"]
    assert got["gpus"][0]["before"]["locked_graphics"] == 1410
    assert got["gpus"][0]["after"]["locked_graphics"] is None
    assert not node.ask(state="reset")["changed"]


def test_persistence_may_be_left_alone_or_be_all_that_is_wanted(node: Node) -> None:
    got = node.ask(persistence=False)
    assert [gpu["persistence"] for gpu in node.read()["gpus"]] == [False, False]
    assert got["check"]["verdict"] == "pass"
    node.ask(state="reset", persistence=True)
    assert [gpu["persistence"] for gpu in node.read()["gpus"]] == [True, True]


def test_a_hanging_nvidia_smi(node: Node) -> None:
    node.set(hangs=True)
    got = node.ask(timeout=0.5)
    assert (got["changed"], got["check"]["verdict"], got["check"]["class"]) == (False, "error", "infra")
    assert "did not end within 0.5 s" in got["check"]["reason"]


@pytest.mark.parametrize(
    "code, text, expect, verdict, reason",
    [
        (6, "No devices were found", (), "skipped", "no GPU"),
        (6, "No devices were found", PROFILE, "error", "No devices were found"),
        (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", (), "error", "couldn't"),
        (15, "Unable to determine the device handle for GPU 0000:0B:00.0: GPU is lost.", (), "error", "GPU is lost"),
        (0, "", (), "error", "it printed ''"),
        (1, "gibberish, 1, 2", (), "error", "gibberish"),
    ],
)
def test_no_gpu_to_be_seen(node: Node, code: int, text: str, expect: t.Any, verdict: str, reason: str) -> None:
    node.set(broken=[[code, text]])
    check = node.ask(expect=expect)["check"]
    assert check["verdict"] == verdict
    assert reason in check["reason"]


def test_gpus_that_vanish_on_the_way(node: Node) -> None:
    """Something was sent, so something may have changed."""
    node.set(broken=[[15, "GPU is lost"]], works_for=7)
    got = node.ask()
    assert (got["changed"], got["check"]["verdict"], len(got["commands"])) == (True, "error", 6)


def test_a_status_says_as_much_as_a_text(node: Node) -> None:
    node.set(unsupported_status=3, unsupported_text="-")
    node.gpu(unsupported=["-lgc"])
    assert node.ask()["gpus"][0]["method"]["graphics"] == "application"


def test_no_nvidia_smi(node: Node) -> None:
    node.program.unlink()
    assert node.ask()["check"]["verdict"] == "skipped"
    check = node.ask(expect=PROFILE)["check"]
    assert (check["verdict"], "cannot be started" in check["reason"]) == ("error", True)


@pytest.mark.parametrize("field", ["clocks_event_reasons.active", "clocks.applications.graphics", "persistence_mode"])
def test_a_driver_that_does_not_know_a_field(node: Node, field: str) -> None:
    node.set(unknown_fields=[field])
    got = node.ask()
    assert got["gpus"][0]["reached"]["graphics"] == 1410
    assert got["gpus"][0]["reasons"] == ["gpu_idle"]


def test_a_driver_that_does_not_know_what_is_needed(node: Node) -> None:
    node.set(unknown_fields=["uuid"])
    assert 'Field "uuid" is not a valid field' in node.ask()["check"]["reason"]


def test_a_record_that_cannot_be_written(node: Node) -> None:
    node.record.parent.write_text("a file")
    got = node.ask()
    assert (got["changed"], got["check"]["verdict"]) == (True, "error")
    assert "cannot be kept" in got["check"]["reason"]


@pytest.mark.parametrize(
    "options",
    [
        {"graphics": 1410},
        {"state": "reset", "memory": 1},
        {"state": "locked", "graphics": 0},
        {"expect": [{"op": "~"}]},
        {"timeout": float("inf")},
        {"settle": float("inf")},
        {"settle": -1.0},
    ],
)
def test_options_that_make_no_sense(node: Node, options: dict[str, t.Any]) -> None:
    with pytest.raises(CheckError):
        node.ask(**options)
    assert node.sent() == []


def test_two_writers_keep_each_other_s_gpus(node: Node) -> None:
    """Jobs that share a node start at the same time."""
    node.ask(devices=[0])
    node.ask(devices=[1])
    assert set(Record(str(node.record)).load("550.90.07")) == {"GPU-0", "GPU-1"}


def test_every_field_is_asked_by_its_full_name() -> None:
    assert len(set(FIELDS)) == len(FIELDS) == 15
