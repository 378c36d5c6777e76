# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import importlib.util
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import typing as t
import zipfile
from pathlib import Path

import pytest
from stand_in import answer

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import suite
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import (
    coordinator,
    evidence,
    installation,
    journal,
    module,
    round,
    slurm,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import node as certify_node
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import PAIRS
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.module import (
    SPEC,
    compiled,
    find_run,
    read_request,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.slurm import CampaignSlurm, JobRow
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.collective import payload
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SEPARATOR, SlurmError

Json = t.Dict[str, t.Any]
SIZES = {"array": 4, "allocation": 4, "stragglers": 2}
# scontrol show topology of Slurm 22.05 with topology/tree.
TOPOLOGY = """\
SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n3
SwitchName=pod0 Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=leaf[0-1]
"""


def single(*names: str, stage: str = "local") -> list[Json]:
    return [{"id": f"01-{stage}-{name}", "stage": stage, "round": 0, "nodes": [name]} for name in names]


def pair(*names: str) -> Json:
    return {"id": f"02-pair-{'-'.join(names)}", "stage": "pair", "round": 1, "nodes": list(names), "collective": ""}


def parameters(**given: t.Any) -> Json:
    return {**{name: spec.get("default") for name, spec in SPEC.items()}, "dir": "/d", "agent": "/a", **given}


@pytest.mark.parametrize(
    ("state", "flags", "reservation", "word"),
    [
        ("IDLE", [], False, "idle"),
        ("IDLE", ["CLOUD", "COMPLETING"], False, "idle"),
        ("ALLOCATED", [], False, "busy"),
        ("MIXED", [], False, "busy"),
        ("IDLE", ["DRAIN"], False, "drained"),
        ("IDLE", ["DRAIN", "NOT_RESPONDING"], True, "drained"),
        ("IDLE", ["NOT_RESPONDING"], False, "down"),
        ("DOWN", [], False, "down"),
        ("IDLE", ["POWERED_DOWN", "CLOUD"], False, "powered_down"),
        ("IDLE", ["POWERING_DOWN", "CLOUD"], False, "powered_down"),
        ("IDLE", ["POWERING_UP", "CLOUD"], False, "powering_up"),
        ("DOWN", ["POWERED_DOWN", "CLOUD"], False, "down"),
        ("DOWN", ["POWERING_DOWN", "CLOUD", "NOT_RESPONDING"], False, "down"),
        ("IDLE", ["MAINTENANCE", "RESERVED"], False, "reserved"),
        ("IDLE", ["MAINTENANCE", "RESERVED"], True, "idle"),
        ("UNKNOWN", [], False, "unknown"),
        ("IDLE", ["SOMETHING_NEW"], False, "something_new"),
    ],
)
def test_only_what_is_surely_free_is_idle(state: str, flags: list[str], reservation: bool, word: str) -> None:
    assert slurm.state({"state": state, "flags": flags}, reservation) == word


def test_nodes_that_say_nothing_have_a_reason() -> None:
    nodes = [
        {"name": "a", "state": "UNKNOWN", "flags": [], "reason": ""},
        {"name": "b", "state": "IDLE", "flags": ["NOT_RESPONDING"], "reason": ""},
        {"name": "c", "state": "DOWN", "flags": ["NOT_RESPONDING"], "reason": "ops: cable swap"},
    ]
    fleet = slurm.fleet(nodes, [], None, {}, {"c": 0.3})
    found = [(node["state"], node["reason"]) for node in fleet.nodes]
    assert [node["suspicion"] for node in fleet.nodes] == [0.0, 0.0, 0.3] and not fleet.others
    assert found[0] == ("unknown", "its slurmd never registered")
    assert found[1][0] == "down"
    assert "munge key" in found[1][1]
    assert found[2][1] == "ops: cable swap"


def test_leaves_and_pods_of_the_topology() -> None:
    assert slurm.places(TOPOLOGY)["n3"] == {"leaf": "leaf1", "pod": "pod0"}
    blocks = (
        "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2\n"
        "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-4] BlockSize=4\n"
    )
    assert slurm.places(blocks)["n3"] == {"leaf": "b2", "pod": ""}
    assert slurm.places("scontrol: error: No topology information available") == {}


def test_nodes_that_slurm_does_not_know_are_refused() -> None:
    known = [{"name": "n1"}, {"name": "n2"}]
    with pytest.raises(SlurmError, match="does not know n3"):
        slurm.selected(known, ["n2", "n3"], None)
    assert [node["name"] for node in slurm.selected(known, ["n2", "n2"], None)] == ["n2"]
    with pytest.raises(SlurmError, match="partition gpu does not have n1"):
        slurm.selected(known, ["n1", "n2"], {"name": "gpu", "nodes": ["n2"]})
    for odd in (" ", "n[1-", ",", "n[2-1]", "n[1-9999999999]"):
        with pytest.raises(ValueError, match=r"hostlist|names no node"):
            read_request(parameters(hosts=odd))
    with pytest.raises(SlurmError, match="no partition gpu"):
        slurm.partition_of([{"name": "batch", "default": True}], "gpu")


def test_history_suspects_until_somebody_cleared() -> None:
    def one(**nodes: str) -> Json:
        return {"nodes": {name: {"status": status, "posterior": 0.4} for name, status in nodes.items()}}

    assert slurm.history([one(a="drained", b="watched"), one(a="cleared", c="untested")]) == {"b": 0.4}
    assert slurm.history([None, 3, {"nodes": 7}, {"nodes": {"a": 1}}]) == {}


def test_queue_of_ours() -> None:
    lines = [
        ["20", "20", "PENDING", "n/a", "hpcai-cert-r-0-1.0"],
        ["21", "20", "RUNNING", "n2", "hpcai-cert-r-0-1.0"],
        ["22", "22", "RUNNING", "n3", "somebody"],
    ]
    answer = "\n".join(SEPARATOR.join(line) for line in lines)
    slurm = CampaignSlurm(lambda argv: (0, answer, ""))
    name = "hpcai-cert-r-0-1.0"
    assert slurm.queue({"hpcai-cert-r"}) == [], "a run whose name begins like another's"
    assert slurm.queue({name}) == [JobRow(20, name, "PENDING", ""), JobRow(20, name, "RUNNING", "n2")]
    with pytest.raises(SlurmError, match="squeue failed"):
        CampaignSlurm(lambda argv: (1, "", "no")).queue({"x"})


def test_jobs_take_so_many_nodes_and_no_more() -> None:
    batch = {"id": "01-local", "stage": "local"}
    tests = [*single(*"abcde"), pair("f", "g"), pair("h", "i", "j"), pair("k", "l")]
    found = slurm.jobs("r", batch, tests, 1, SIZES)
    assert [(job.kind, list(job.nodes)) for job in found] == [
        ("array", list("abcd")),
        ("node", ["e"]),
        ("round", ["f", "g"]),
        ("round", ["h", "i", "j"]),
        ("round", ["k", "l"]),
    ]
    assert len({job.name for job in found}) == len(found)
    again = slurm.jobs("r", batch, single(*"abcde"), 2, SIZES)
    assert [(job.kind, len(job.nodes)) for job in again] == [("array", 4), ("node", 1)]
    assert [job.kind for job in slurm.jobs("r", batch, single("a", "b"), 3, SIZES)] == ["node", "node"]
    assert not {job.name for job in again} & {job.name for job in found}


def test_tests_of_the_same_nodes_are_one_job_which_has_time_for_each_of_them() -> None:
    """Another job would wait for these nodes."""
    groups = [("a", "b", "c"), ("d", "e", "f"), ("g", "h")]
    tests = [{**pair(*group), "id": f"{c}{group[0]}", "collective": c} for c in ("x", "y") for group in groups]
    batch = {"id": "05-ladder", "stage": "ladder", "concurrent": 3}
    found = slurm.jobs("r", batch, tests, 1, {**SIZES, "allocation": 6})
    assert [[test["id"] for test in job.tests] for job in found] == [["xa", "ya", "xd", "yd"], ["xg", "yg"]]
    how = {**read_request(parameters(gpus=8, timeout=70)).settings(1000), "agent_path": "/a"}
    request = {"run": "r", "how": how}
    assert [slurm.job_content(job, batch, request, "/d")["concurrent"] for job in found] == [2, 1]
    # Twice what one takes at most, which measures twice.
    assert [slurm.job_seconds(job, batch, how) for job in found] == [400.0, 400.0]


def test_options_of_an_array_and_of_a_round() -> None:
    how = read_request(parameters(nodes_at_once=3, gpus=8, sbatch_options={"account": "ops"})).settings(1000)
    array, dummy, wide = slurm.jobs("r", {"id": "b"}, [*single(*"abcde"), pair("f", "g")], 1, SIZES)
    options = slurm.sbatch_arguments(array, how, ["e", "f"], 630.0, "/log")
    assert {"--array=0-3", "--exclude=e,f", "--no-requeue", "--exclusive", "--gpus-per-node=8", "--account=ops"} <= {
        *options
    }
    assert not [option for option in options if option.startswith("--nodelist")]
    assert "--deadline=now+10091minutes" in options
    assert "--time=60" in slurm.sbatch_arguments(wide, {**how, "longest": 3600}, [], 1e6, "/log")
    options = slurm.sbatch_arguments(wide, how, [], 30.0, "/log", after=7)
    assert {"--nodes=2", "--nodelist=f,g", "--no-kill", "--time=2", "--dependency=afterany:7"} <= {*options}


def test_script_quotes_its_paths() -> None:
    job = slurm.RoundJob("n", [], "round")
    assert "'/shared dir/a.pyz' round '/x y.json'" in slurm.job_script(
        job, {"interpreter": "/usr/bin/python3"}, "/shared dir/a.pyz", "/x y.json"
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"run": "../x"}, "letters, digits"),
        ({"timeout": float("nan")}, "timeout"),
        ({"wait": 0.0}, "wait"),
        ({"nodes_at_once": -1}, "negative"),
        ({"environment": {"A": True}}, "quote"),
        ({"torch": {"pyton": "x"}}, "pyton"),
        ({"options": {"confirm_round": 2}}, "confirm_round"),
        ({"sbatch_options": {"nodelist": "x"}}, "nodelist"),
        ({"sbatch_options": {"test_only": True}}, "test_only"),
        ({"sbatch_options": {"--wrap": "rm"}}, "wrap"),
        ({"profile": {"expect": [{"check": "x"}]}}, "lacks"),
    ],
)
def test_requests_that_make_no_sense_are_refused(given: Json, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_request(parameters(**given))


def test_profile_decides_how_unless_somebody_says_otherwise() -> None:
    profile = {"profile": "p", "gpu": {"count": 8}, "infiniband": {"count": 8}, "nccl": {"tests": {"max_size": 1}}}
    how = read_request(parameters(profile=profile)).settings(1000)
    assert (how["tool"], how["gpus"], how["infiniband"]) == ("nccl", 8, True)
    how = read_request(parameters(profile=profile, gpus=0)).settings(1000)
    assert (how["tool"], how["gpus"]) == ("torch", 0)
    assert how["agent"]["profile"]["gpu"]["count"] == 0


def test_fingerprint_is_of_what_was_asked_not_of_how_it_is_watched() -> None:
    def of(**given: t.Any) -> str:
        request = read_request(parameters(**given))
        return request.fingerprint(request.settings(1000))

    assert of() == of(poll=9.0, run="x")
    assert of() != of(hosts="n1")
    assert of() != of(timeout=9.0)


def test_first_answer_stays_and_half_a_line_is_none(tmp_path: Path) -> None:
    book = journal.Journal(tmp_path)
    book.create()
    assert book.results("t") is None
    book.answer("t", [{"check": "a", "verdict": "pass"}])
    book.answer("t", [{"check": "a", "verdict": "fail"}])
    assert [one["verdict"] for one in book.results("t") or []] == ["pass"]
    (tmp_path / "results/u.jsonl").write_text('{"check": "a", "verdict": "pass"}\n{"check": "b", "ver')
    found = book.results("u") or []
    assert [(one["check"], one["verdict"]) for one in found] == [("a", "pass"), ("result", "error")]
    assert "1 of 2 lines" in found[1]["reason"]
    (tmp_path / "results/v.jsonl").touch()
    assert [one["verdict"] for one in book.results("v") or []] == ["error"]
    assert book.answered() == {"t", "u", "v"}
    for name in ("", "../x", "a/b", ".hidden", "x" * 300):
        with pytest.raises(journal.JournalError, match="name of a file"):
            book.path("results", name)


def test_hostile_results_are_no_records() -> None:
    dice = random.Random(6)
    junk: list[t.Any] = [{}, None, 7, "x", ["y"]]
    values: list[t.Any] = [None, 0, -1, 1e308, "", "pass", [], {}, {"check": 1}, {"check": "x", "verdict": []}, True]
    for dummy in range(5000):
        text = "".join(
            json.dumps({name: dice.choice(values) for name in ("check", "verdict")} | {"context": dice.choice(junk)})
            + dice.choice(["\n", "", "\x00\n"])
            for dummy in range(3)
        )
        for one in journal.records(text):
            assert isinstance(one["check"], str)
            assert isinstance(one["verdict"], str)
            assert round.marked(one, pair("a", "b"), "r")["context"]["stage"] == "pair"


def test_silence_is_measured_by_those_who_answered() -> None:
    assert coordinator.enough(10.0, []) == 10.0
    assert coordinator.enough(10.0, [0.2] * 5) == 10.0, "it is the least"
    # Of one other little is known, of hundreds the slowest is about as slow as they get.
    few, some, many = (coordinator.enough(1.0, [8.0] * count) for count in (1, 31, 500))
    assert 70 < few < 80
    assert 16 < some < 20
    assert many == 12.0


def test_sound_nodes_are_hardly_ever_slower_than_that() -> None:
    dice = random.Random(3)
    for count in (1, 3, 15, 100):
        draws = [[dice.expovariate(0.5) for dummy in range(count + 1)] for dummy in range(4000)]
        again = sum(one[0] > coordinator.enough(5.0, one[1:]) for one in draws)
        silent = sum(one[0] > coordinator.enough(5.0, one[1:]) * (1 + coordinator.MORE) for one in draws)
        assert again <= 160, count
        assert not silent, count


def test_task_of_every_node_starts_without_what_only_measurements_need() -> None:
    code = f"import sys; import {certify_node.__name__}; print(*sys.modules)"
    argv = [sys.executable, "-c", code]
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": paths})
    names = {name.rpartition(".module_utils.")[2] for name in done.stdout.split()}
    assert "certify.node" in names
    slow = ("nccl.", "collective.", "_launch", "agent.registry")
    heavy = {name for name in names if name == "certify.round" or name.startswith(slow)}
    assert not heavy


def test_silent_or_broken_suite_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    node: Json = {"suites": {"full": {"checks": ["memory"]}}}
    job = {"run": "r", "how": {"agent": node, "suite": "full", "suite_timeout": 20}}
    measured = {**single("n1")[0], "stage": "local"}
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-16]")
    assert [one["check"] for one in certify_node.perform(measured, job, "n1")][:2] == ["reach", "memory"]
    assert "SLURM_JOB_NODELIST" not in os.environ, "mpirun would use the other nodes of the step"

    def broken(*dummy: t.Any) -> t.NoReturn:
        raise MemoryError

    for bad in (broken, lambda *dummy: []):
        monkeypatch.setattr(suite, "records", bad)
        last = certify_node.perform(measured, job, "n1")[1]
        assert (last["check"], last["verdict"], last["class"]) == ("suite", "error", "infra")


def test_compiled_agent_does_the_same_in_any_python(tmp_path: Path) -> None:
    plain = io.BytesIO()
    with zipfile.ZipFile(plain, "w") as archive:
        archive.writestr("__main__.py", "import other\nprint(other.__file__.rpartition('.')[2], other.VALUE)\n")
        archive.writestr("other.py", "VALUE = 7\n")
    assert compiled(b"no zip") == b"no zip"
    data = compiled(plain.getvalue())
    foreign = _rewritten(data, importlib.util.MAGIC_NUMBER)
    for name, content, suffix in (("same", data, "pyc"), ("foreign", foreign, "py")):
        file = tmp_path / f"{name}.pyz"
        file.write_bytes(content)
        done = subprocess.run([sys.executable, "-IS", file], capture_output=True, text=True, check=True)
        assert done.stdout.split() == [suffix, "7"]


def _rewritten(data: bytes, magic: bytes) -> bytes:
    """The same with bytecode of another Python."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as given, zipfile.ZipFile(out, "w") as made:
        for entry in given.infolist():
            text = given.read(entry)
            made.writestr(entry, b"\0\0\r\n" + text[4:] if text.startswith(magic) else text)
    return out.getvalue()


def test_whatever_goes_wrong_on_a_node_it_answers() -> None:
    """No suite can be started here, as on a node whose disk is full: that is an error, and no silence."""
    found = certify_node.perform(single("n1")[0], {"run": "r"}, "n1")
    assert [(one["check"], one["verdict"], one["class"]) for one in found[:2]] == [
        ("reach", "pass", None),
        ("suite", "error", "infra"),
    ]


def test_a_node_says_which_installation_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "machine-id").write_text("8b0b0a8f3f1c4d0e9d8b7a6c5d4e3f21\n")
    monkeypatch.setattr(installation.here, "__defaults__", ((str(tmp_path / "machine-id"),),))
    records = certify_node.perform(single("n1", stage="reach")[0], {"run": "r"}, "n1")
    told = installation.digest("8b0b0a8f3f1c4d0e9d8b7a6c5d4e3f21")
    assert evidence.read(records).installations == {"n1": told}
    assert "8b0b0a8f" not in json.dumps(records)


def test_damaged_certificate_does_not_stand_in_the_way_of_a_new_one(tmp_path: Path) -> None:
    for number, (name, text) in enumerate([("nightly", "{}"), ("20260101", "{half"), ("20260102", '{"nodes": {}}')]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "certificate.json").write_text(text)
        os.utime(tmp_path / name / "certificate.json", (number, number))
    assert journal.earlier(tmp_path) == [{}, {"nodes": {}}]


def test_findings_of_root_are_told_while_they_are_recent() -> None:
    def found(check: str, verdict: str) -> Json:
        return {"check": check, "verdict": verdict, "scope": {}, "reason": check, "context": {}}

    state = {
        "node": "n1",
        "latched": {"xid": found("gpu_xid", "fail")},
        "suites": {
            "periodic": {"time": 1000.0, "records": [found("mount", "fail"), found("memory", "pass")]},
            "boot": {"time": -9e9, "records": [found("old", "fail")]},
        },
    }
    assert [one["check"] for one in certify_node.own(state, "n1", 1100.0)] == ["gpu_xid", "mount"]
    assert certify_node.own(state, "n2", 1100.0) == []
    for hostile in (None, 7, {"node": "n1", "latched": {"x": 3}, "suites": {"y": 4}}):
        assert certify_node.own(hostile, "n1", 0.0) == []


def test_findings_of_root_end_where_a_later_suite_found_all_in_order() -> None:
    def run(moment: float, **verdicts: str) -> Json:
        told = {"scope": {}, "context": {}}
        return {
            "time": moment,
            "records": [{"check": c, "verdict": v, "reason": v, **told} for c, v in verdicts.items()],
        }

    epilog = run(1000.0, scratch_array="fail", scratch_probe="fail", memory="fail", swap="pass")
    later = run(1001.0, scratch_array="pass", scratch_probe="error", swap="fail")

    def told(*runs: Json) -> list[str]:
        suites = {str(number): one for number, one in enumerate(runs)}
        return [one["check"] for one in certify_node.own({"node": "n1", "suites": suites}, "n1", 1100.0)]

    assert told(epilog, later) == ["scratch_probe", "memory", "swap"]
    assert told(later, epilog) == ["swap", "scratch_probe", "memory"]
    assert told(run(1000.0, gpu="pass"), run(1001.0, gpu="fail")) == ["gpu"]


def test_pairs_use_the_fabric_alone_and_meet_only_limits_of_their_own() -> None:
    limit = {"metric": "busbw", "op": ">=", "value": 1, "unit": "GB/s", "source": "test"}
    expect = [{"check": "nccl_tests", **limit}, {"check": "nccl_pair", **limit, "value": 2}]
    how = {
        **read_request(parameters(gpus=8, profile={"profile": "p", "expect": expect})).settings(1000),
        "infiniband": True,
    }
    params = round.nccl_params({**pair("a", "b"), "collective": "all_reduce"}, how, "r", round.PAIR, "/log")
    assert params["environment"] == round.FABRIC_ONLY
    assert [(one["check"], one["value"]) for one in params["expect"]] == [("nccl_tests", 2)]
    assert (params["hosts"], params["min_size"], params["max_size"]) == (["a", "b"], str(1 << 30), "8G")
    rung = {**pair("a", "b"), "stage": "ladder", "collective": "alltoall"}
    params = round.nccl_params(rung, how, "r", "nccl_tests", "/log")
    assert (params["environment"], params["min_size"], params["collectives"]) == ({}, "8", ["alltoall"])


def test_test_that_cannot_be_started_is_an_error_of_the_infrastructure(tmp_path: Path) -> None:
    how = read_request(parameters(gpus=0, torch={"max_size": "many"})).settings(1000)
    ((name, found),) = round.measure([pair("a", "b")], how, "r", str(tmp_path))
    assert name == "02-pair-a-b"
    assert [(one["verdict"], one["class"], one["scope"]) for one in found] == [
        ("error", "infra", {"group": ["a", "b"]})
    ]
    assert found[0]["context"]["test"] == "02-pair-a-b"


def test_pair_that_hangs_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three measurements of one pair would keep the whole round waiting three times."""
    answer(tmp_path / "srun", calls=tmp_path / "begun", hangs="yes")
    answer(tmp_path / "all_reduce_perf")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    given = parameters(tool="nccl", gpus=8, nccl={"path": str(tmp_path / "all_reduce_perf")}, timeout=0.5)
    test = {**pair("a", "b"), "collective": "all_reduce", "rails": True}
    ((_name, found),) = round.measure(
        [test], {**read_request(given).settings(1000), "infiniband": True}, "r", str(tmp_path)
    )
    assert [(one["check"], one["verdict"], one["class"]) for one in found] == [("nccl_pair", "error", "infra")]
    assert "did not end within 0.5 s" in found[0]["reason"]
    assert len((tmp_path / "begun").read_text().splitlines()) == 1


class Ranks:
    """An srun whose ranks measure what its command line asks for, in no time; one collective may come to no end."""

    def __init__(self, hangs: str = "") -> None:
        self.hangs, self.asked = hangs, []

    def __call__(self, argv: t.Sequence[str], *dummy: t.Any) -> Outcome:
        names = argv[argv.index("--operations") + 1 :]
        operations = list(itertools.takewhile(lambda word: not word.startswith("--"), names))
        turns = next((int(word.partition("=")[2]) for word in argv if word.startswith("--turns=")), 1)
        self.asked.append((operations, turns))
        if self.hangs in operations:
            return Outcome(rc=None, out="", err="", seconds=4.0)
        measured = [
            [payload.row(name, 1 << 20, 1 << 18, turn + 1.0, 2, 0) for name in operations] for turn in range(turns)
        ]
        ranks = [{"rank": rank, "host": host, "machine": host} for rank, host in enumerate("ab")]
        told = {"rows": measured[0], "turns": measured, "ranks": ranks, "torch": "2"}
        return Outcome(rc=0, out=f"{payload.MARK}{json.dumps(told)}\n", err="", seconds=4.0)


def measured_by(ranks: Ranks, tests: t.Sequence[Json], monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Json]]:
    torch = {"max_size": 1 << 20, "python": "python", "backend": "gloo", "ranks_per_node": 1}
    monkeypatch.setattr(round, "run", ranks)
    return dict(round.measure(tests, read_request(parameters(gpus=0, torch=torch)).settings(1000), "r", "/nowhere"))


def test_ranks_that_are_there_measure_what_the_same_nodes_have_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """To start PyTorch takes longer than to measure with it."""
    rung = [
        {**pair("a", "b"), "id": name, "stage": "ladder", "collective": name} for name in ("all_reduce", "alltoall")
    ]
    pairs = [{**pair("a", "b"), "id": stage, "stage": stage, "collective": "all_reduce"} for stage in PAIRS]
    ranks = Ranks()
    found = measured_by(ranks, [pairs[0], *rung, pairs[1]], monkeypatch)
    assert ranks.asked == [(["all_reduce"], 2), (["all_reduce", "all_to_all"], 1)]
    assert {name: [one["context"]["collective"] for one in rows] for name, rows in found.items()} == {
        "pair": ["all_reduce"],
        "confirm": ["all_reduce"],
        "all_reduce": ["all_reduce"],
        "alltoall": ["all_to_all"],
    }
    assert [row["context"]["test"] for rows in found.values() for row in rows] == list(found)
    # The second turn took twice as long.
    assert [found[stage][0]["samples"][0]["time_us"] for stage in PAIRS] == [1e6, 2e6]
    assert [rows[0]["seconds"] for rows in found.values()] == [2.0] * 4


def test_collective_that_comes_to_no_end_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = [{**pair("a", "b"), "id": name, "collective": name} for name in ("all_reduce", "alltoall")]
    ranks = Ranks(hangs="all_to_all")
    found = measured_by(ranks, tests, monkeypatch)
    assert ranks.asked == [(["all_reduce", "all_to_all"], 1), (["all_reduce"], 1), (["all_to_all"], 1)]
    assert {name: rows[0]["verdict"] for name, rows in found.items()} == {"all_reduce": "unjudged", "alltoall": "error"}


def test_tests_of_the_same_nodes_never_run_beside_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a rung each collective is a test of its own, and a thread is free while another group still measures."""
    book = journal.Journal(tmp_path)
    book.create()
    collectives = ("all_reduce", "alltoall")
    groups = [("a", "b"), ("c", "d")]
    tests = [{**pair(*group), "id": f"{c}-{group[0]}", "collective": c} for c in collectives for group in groups]
    job = {"folder": str(tmp_path), "tests": tests, "concurrent": 2, "how": {}, "run": "r"}
    (tmp_path / "job.json").write_text(json.dumps(job))
    together: list[list[str]] = []

    def measure(few: t.Sequence[Json], *dummy: t.Any) -> t.Iterator[tuple[str, list[Json]]]:
        together.append([test["id"] for test in few])
        yield from ((test["id"], []) for test in few)

    monkeypatch.setattr(round, "measure", measure)
    assert round.main([str(tmp_path / "job.json")]) == 0
    assert sorted(together) == [["all_reduce-a", "alltoall-a"], ["all_reduce-c", "alltoall-c"]]


@pytest.mark.parametrize("main", [certify_node.main, round.main])
def test_subcommands_refuse_what_is_no_job(tmp_path: Path, main: t.Callable[[t.Sequence[str]], int]) -> None:
    file = tmp_path / "job.json"
    file.write_text("null")
    assert main([]) == 2
    assert main([str(file)]) == 2


def test_drains_are_one_call_per_class_and_only_what_the_guard_lets_through() -> None:
    nodes = {f"n{number}": {"class": "hardware" if number < 4 else "fabric"} for number in range(1, 6)}
    certificate = {"run": "r", "nodes": nodes, "drains": ["n1", "n2", "n5"]}
    assert module.drains(certificate) == [
        {"name": "n5", "reason": "hpcai:certification:fabric fault, run r"},
        {"name": "n[1-2]", "reason": "hpcai:certification:hardware fault, run r"},
    ]


def test_stage_that_measured_nothing_is_told() -> None:
    rounds_ = [{"stage": "pair", "tests": [{"verdict": "error"}, {"verdict": None}]}]
    certificate = {
        "nodes": {"n1": {"status": "cleared", "reason": ""}, "n2": {"status": "watched", "reason": "why"}},
        "findings": [{"kind": "fabric", "text": "slow"}],
        "rounds": rounds_,
    }
    assert [one["status"] for one in module.refused(certificate)] == ["watched", "finding", "error"]


def test_certificate_of_no_node_at_all_is_an_error_whatever_is_thought_of_untested_ones() -> None:
    """A Slurm whose nodes were all down got a certificate, and existing_slurm's play was green."""
    untested = {"status": "untested", "reason": "down: its slurmd never registered"}
    cleared = {"status": "cleared", "reason": ""}
    nothing: Json = {"nodes": {"n1": untested, "n2": untested}, "findings": [], "rounds": []}
    assert [one["status"] for one in module.refused(nothing)] == ["untested", "untested", "error"]
    one_busy = {**nothing, "nodes": {"n1": cleared, "n2": untested}}
    assert [one["status"] for one in module.refused(one_busy)] == ["untested"]


def test_round_that_is_ended_takes_its_steps_with_it(tmp_path: Path) -> None:
    """The thread of a step waits for it: the step has to end first, and no other begins."""
    book = journal.Journal(tmp_path)
    book.create()
    tests = [pair("a", "b"), pair("c", "d")]
    (tmp_path / "job.json").write_text(json.dumps({"folder": str(tmp_path), "tests": tests, "concurrent": 1}))
    code = f"""
import sys
from pathlib import Path
from {round.__name__.rpartition(".")[0]} import round
from {round.__name__.rpartition(".module_utils")[0]}.module_utils._process import run

def measure(tests, *dummy):
    Path(sys.argv[2], "step-" + "-".join(tests[0]["nodes"])).touch()
    yield tests[0]["id"], [run(["sleep", "3600"], 3600).rc]

round.measure = measure
job = {{"how": {{}}, "run": "r"}}
round.journals.load = lambda path, load=round.journals.load: {{**load(path), **job}}
round.main([sys.argv[1]])
"""
    paths = os.pathsep.join(path for path in sys.path if path)
    argv = [sys.executable, "-c", code, str(tmp_path / "job.json"), str(tmp_path)]
    child = subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.PIPE)
    while not (tmp_path / "step-a-b").exists():
        assert child.poll() is None, child.communicate()
    child.terminate()
    # The step would take an hour: what ends it is the signal, however busy the machine is.
    assert child.wait(float(os.environ.get("HPCAI_TEST_PATIENCE") or 1) * 300) == 128 + signal.SIGTERM
    assert not (tmp_path / "step-c-d").exists()


class Bare:
    """A Slurm with two nodes, and with or without a topology of its own."""

    def __init__(self, topology: str) -> None:
        self._topology = topology

    def nodes(self) -> list[Json]:
        return [{"name": name, "state": "IDLE", "flags": [], "reason": ""} for name in ("n1", "n2")]

    def topology(self) -> str:
        return self._topology


@pytest.mark.parametrize(
    ("own", "leaf"), [("", "rack7"), ("SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n", "leaf1")]
)
def test_leaves_are_slurms_and_else_those_of_the_request(own: str, leaf: str, tmp_path: Path) -> None:
    given = [{"name": "rack7", "nodes": ["n1", "n2"]}, {"name": "room", "switches": ["rack7"]}]
    request = read_request(parameters(dir=str(tmp_path), topology=given))
    run = find_run(request, Bare(own), 1000, None)  # type: ignore[arg-type]
    nodes = run["fleet"]["nodes"]
    assert ([node["leaf"] for node in nodes], run["others"]) == ([leaf] * 2, [])
    assert nodes[0]["pod"] == ("" if own else "room")
