# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""5,000 hostile configurations, states and records, the same ones in every run: no crash, and nothing passes by it."""

from __future__ import annotations

import copy
import json
import random
import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import compare, metric, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import check, commands, registry, runner, suite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import state as agent_state
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import BootedHost, Context

Json = t.Dict[str, t.Any]
HOST = BootedHost("boot-1", "CO4SCH000000001")
JUNK: list[t.Any] = [
    None,
    True,
    False,
    0,
    -1,
    1e308,
    float("nan"),
    float("inf"),
    10**400,
    "",
    "\0",
    "\ud800",
    "PASS",
    "../../etc/shadow",
    "$(reboot)",
    "x" * 5000,
    [],
    [[]],
    [None],
    {},
    {"": None},
    {"schema": 1},
    [1, "a", {}],
]
CONFIG: Json = {
    "schema": 1,
    "node": "n1",
    "profile": {
        "profile": "nd96isr_h100_v5",
        "gpu": {"model": "H100", "count": 8},
        "topology": {"gpus": [{"pci_domain": "0001", "numa_node": 0}]},
        "infiniband": {"count": 8, "devices": ["mlx5_ib0"]},
        "nvme": {"count": 8, "controller": "Microsoft NVMe Direct Disk v2"},
        "expect": [{"check": "c", "metric": "m", "op": ">=", "value": 1, "unit": "GB/s", "source": "s"}],
    },
    "paths": ["/", "/shared"],
    "shared_dir": "/shared",
    "scratch": None,
    "kernel_log": "/dev/kmsg",
    "spool": "/var/lib/hpcai/agent",
    "tools": {"nvidia_smi": ""},
    "environment": {"A": "b"},
    "suites": {"prolog": {"checks": ["latches"], "budget": 3}},
}
FLOOR = {"metric": "busbw", "op": ">=", "value": 460, "unit": "GB/s", "source": "s"}


def failed() -> Json:
    missed = compare(metric("busbw", 200.0, "GB/s", collective="all_reduce"), FLOOR)
    about: Json = {"scope": {"gpu": [3]}, "context": {"latched": True, "code": 79, "physical_host": "h"}}
    return record("gpu_xid", "n1", time=1.0, metrics=[missed], blame="hardware", **about)


def places(value: t.Any) -> list[tuple[t.Any, t.Any]]:
    """Return every place inside that can be replaced, as container and key."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [place for key in keys for place in ((value, key), *places(value[key]))]


def spoiled(source: random.Random, value: t.Any) -> t.Any:
    """Return a copy with one to three places replaced, removed or renamed."""
    found = copy.deepcopy(value)
    for _again in range(source.randint(1, 3)):
        ahead = places(found)
        if not ahead:
            break
        container, key = source.choice(ahead)
        how = source.randrange(4)
        if how == 0:
            del container[key]
        elif how == 1 and isinstance(container, dict):
            container[f"{key}x"] = container.pop(key)
        else:
            container[key] = copy.deepcopy(source.choice(JUNK))
    return found


def cut(source: random.Random, text: str) -> str:
    """Return a text that breaks off, or has other bytes in it."""
    data = bytearray(text.encode("utf-8", "surrogatepass"))
    del data[source.randrange(len(data) + 1) :]
    for _again in range(source.randint(0, 4)):
        if data:
            data[source.randrange(len(data))] = source.randrange(256)
    return data.decode(errors="replace")


@pytest.mark.parametrize("seed", range(5))
def test_a_configuration_is_used_as_it_is_meant_or_refused(seed: int, tmp_path: t.Any) -> None:
    source = random.Random(seed)
    for _again in range(300):
        raw = spoiled(source, CONFIG)
        try:
            found = check.check(raw)
            plan = registry.plan(found, "prolog")
        except check.ConfigError:
            continue
        assert found.node == raw["node"] and found.gpus == ((raw.get("profile") or {}).get("gpu") or {}).get("count", 0)
        assert 1 <= plan.budget < float("inf") and set(plan.checks) <= set(registry.CHECKS)
    for _again in range(100):
        (tmp_path / "agent.json").write_text(cut(source, json.dumps(CONFIG)))
        try:
            check.load(tmp_path / "agent.json")
        except check.ConfigError as exc:
            assert str(tmp_path) in str(exc)


@pytest.mark.parametrize("seed", range(5))
def test_a_state_is_read_without_a_crash_and_never_in_silence(seed: int) -> None:
    source = random.Random(seed)
    whole = agent_state.merge(agent_state.fresh("n1", HOST), "periodic", 1.0, [failed()], {"count": 3})
    for number in range(300):
        text = json.dumps(spoiled(source, whole)) if number % 3 else cut(source, json.dumps(whole))
        state, problem = agent_state.read(text, "n1", HOST)
        records = [one for run in state["suites"].values() for one in run["records"]]
        assert all(agent_state.sound(one) for one in (*state["latched"].values(), *records))
        if not state["latched"]:
            lost = json.loads(text) if not problem else {}
            assert problem or lost.get("latched") == {} or lost.get("boot_id") not in ("boot-1", "", None)
        again = agent_state.merge(state, "prolog", 2.0, [failed()], {})
        letter = commands.compose(again, 3.0, problem)
        assert any(one["check"] == "gpu_xid" for one in letter["records"])
        assert json.dumps(letter)


@pytest.mark.parametrize("seed", range(5))
def test_a_record_that_is_damaged_is_an_error_and_never_a_pass(seed: int) -> None:
    source = random.Random(seed)
    found = check.check(CONFIG)
    run = runner.SuiteRun(found, "prolog", registry.plan(found, "prolog"), 0.0)
    for _again in range(300):
        records = spoiled(source, [failed(), failed()])
        answer = runner.trusted(run, "latches", records, HOST)
        assert answer and {one["verdict"] for one in answer} <= {"fail", "error"}
        assert all(one["class"] == "infra" for one in answer if one["verdict"] == "error")
        runner.once(answer)
        suite.status("prolog", answer)


@pytest.mark.parametrize("seed", range(3))
def test_a_letter_that_is_damaged_is_written_again(seed: int) -> None:
    source = random.Random(seed)
    state = agent_state.merge(agent_state.fresh("n1", HOST), "periodic", 1.0, [failed()], {})
    letter = commands.compose(state, 100.0)
    assert not commands.due(json.loads(json.dumps(letter)), letter)
    for _again in range(100):
        damaged = spoiled(source, {**letter, "records": []})
        assert commands.due(damaged, letter)


@pytest.mark.parametrize("seed", range(3))
def test_a_latched_fault_survives_whatever_else_is_in_the_state(seed: int) -> None:
    source = random.Random(seed)
    whole = agent_state.merge(agent_state.fresh("n1", HOST), "periodic", 1.0, [failed()], {})
    for _again in range(100):
        whole["latched"][f"other-{source.random()}"] = spoiled(source, failed())
        state, problem = agent_state.read(json.dumps(whole), "n1", HOST)
        assert agent_state.key(failed()) in state["latched"]
        context = Context(check.check(CONFIG), "prolog", host=HOST, state=state, problem=problem)
        found = registry.perform("latches", context)
        assert suite.status("prolog", found) == 1


def test_a_pass_that_its_own_metrics_contradict_is_none() -> None:
    one = failed()
    assert agent_state.sound(one)
    assert not agent_state.sound({**one, "verdict": "pass", "class": None})
    assert not agent_state.sound({**one, "class": None})
    assert not agent_state.sound({**one, "verdict": "error", "class": "hardware"})
