# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""infiniband_bandwidth: the request, the program on the nodes, what came back, and the check record."""

from __future__ import annotations

import json
import re
import secrets
import socket
import sys
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks, _launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    explain,
    judge,
    metric,
    overall,
    record,
    validate_expectation,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._find import NotFound
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import text_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import payload
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband.payload import MARK
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import perftest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import busy

# infiniband_bandwidth: what came back from the nodes, and the check record. Pure, private.


CHECK = "infiniband_bandwidth"
_TAIL = 2000


class MeasuredLink(t.NamedTuple):
    """One port; ``problem`` says why there is no number, ``kind`` whose fault that is."""

    nic: str
    gbps: float | None
    problem: str
    kind: str
    facts: Json


def reports(text: str) -> tuple[list[str], list[Json]]:
    """Return the ports that were planned on the nodes, and what each program did."""
    planned: list[str] = []
    found = []
    for line in text.splitlines():
        # srun may have put the number of the task before it.
        dummy, mark, rest = line.partition(MARK)
        try:
            item = json.loads(rest) if mark else None
        except ValueError:
            continue
        if isinstance(item, dict):
            planned += [str(nic) for nic in item.get("plan", [])]
            found += [item] if "nic" in item else []
    return planned, found


def measure(nic: str, found: t.Sequence[Json], asked: Json) -> MeasuredLink:
    """Read what the client of a port printed; the server explains a failure better where it knows more."""
    client = next((item for item in found if item["nic"] == nic and item["role"] == "client"), None)
    if client is None:
        return MeasuredLink(nic, None, f"{nic}: no result", "infra", {})
    server = _server(client, found, asked)
    log = perftest.parse(client.get("out", ""))
    run = log.runs[-1] if log.runs else None
    facts = {
        key: client.get(key) for key in ("host", "partner", "link_layer", "numa_node", "cpus", "seconds", "argv", "rc")
    }
    facts.update(server=(server or {}).get("host"), gpu=run and run.gpu)
    problem, kind = _problem(client, log, run, asked)
    if problem and server:
        told = perftest.parse(server.get("out", "")).cause
        said = server.get("problem") or (told.text if told and told.kind in ("fabric", "hardware", "config") else "")
        if said and said not in problem:
            problem, kind = f"{problem}; server: {said}", told.kind if told and kind == "infra" else kind
    speed = run.bandwidth(asked["size"]) if run and not problem else None
    if problem and not problem.startswith(nic):
        problem = f"{nic}: {problem}"
    return MeasuredLink(nic, speed, problem, kind, facts)


def _server(client: Json, found: t.Sequence[Json], asked: Json) -> Json | None:
    servers = [item for item in found if item["role"] == "server"]
    if "partner" in client:
        mine = found.index(client)
        return next((item for item in found[mine + 1 : mine + 2] if item["role"] == "server"), None)
    position = [item["nic"] for item in found if item["role"] == "client"].index(client["nic"])
    return servers[position] if position < len(servers) else None


def _problem(
    client: Json, log: Log[perftest.PerftestRun], run: perftest.PerftestRun | None, asked: Json
) -> tuple[str, str]:
    """Say why the number cannot be believed: status, text and link layer must all agree."""
    if client.get("problem"):
        return client["problem"], "config"
    if log.cause:
        return log.cause.text, log.cause.kind
    if client["rc"] != 0:
        ended = "did not end" if client["rc"] is None else f"exit status {client['rc']}"
        return f"{asked['test']}: {ended}", "infra"
    if run is None or not run.ok:
        return f"{asked['test']} printed no complete table", "infra"
    if run.link_layer != asked["link_layer"]:
        return f"{asked['test']} used {run.link_layer}, not {asked['link_layer']}", "config"
    if run.device != client["nic"].partition(":")[0]:
        return f"{asked['test']} measured {run.device}", "config"
    if run.bidirectional or run.bandwidth(asked["size"]) is None:
        return f"{asked['test']} printed no average of one direction at {asked['size']} bytes", "infra"
    return "", "hardware"


def result(outcome: Outcome, asked: Json, expectations: t.Sequence[Json], about: Json) -> Json:
    """Return what the module returns."""
    planned, found = reports(outcome.out)
    nics = list(asked["devices"]) or list(dict.fromkeys(planned))
    taken = busy(outcome.err)
    if taken and not found:
        return {"checks": [record(CHECK, verdict="skipped", reason=taken, **about)], "results": []}
    expected = any(one["check"] == CHECK for one in expectations)
    if not nics and not expected and outcome.rc == 0:
        return {
            "checks": [record(CHECK, verdict="skipped", reason=f"no {asked['link_layer']}", **about)],
            "results": [],
        }
    measured = [measure(nic, found, asked) for nic in nics]
    metrics = [metric("bandwidth", one.gbps, "Gb/s", nic=one.nic, test=asked["test"]) for one in measured]
    judged = judge(CHECK, metrics, expectations, asked["nodes"])
    problems = [one for one in measured if one.problem]
    samples = [{"nic": one.nic, "bandwidth": one.gbps, **one.facts, "problem": one.problem or None} for one in measured]
    hosts = sorted({item["host"] for item in found})
    if asked["nodes"] == 1 and len(hosts) == 1:
        about = {**about, "node": about["node"] or hosts[0]}
    one = record(
        CHECK,
        metrics=judged,
        verdict=_verdict(problems, judged, outcome),
        blame=_blame(problems),
        reason=_reason(problems, judged, outcome, nics),
        scope=_scope(problems, judged, hosts if asked["nodes"] > 1 else []),
        samples=samples,
        evidence=_evidence(problems, found, outcome),
        **about,
    )
    return {"checks": [one], "results": samples}


def _verdict(problems: t.Sequence[MeasuredLink], judged: t.Sequence[Json], outcome: Outcome) -> str | None:
    """A link that does not carry the test is a finding, a test that did not run is none."""
    if any(one.kind in ("fabric", "hardware") for one in problems) or overall(judged) == "fail":
        return "fail"
    return "error" if problems or outcome.problem or not judged else None


def _blame(problems: t.Sequence[MeasuredLink]) -> str:
    return next((one.kind for one in problems if one.kind in ("fabric", "hardware")), "fabric")


def _reason(
    problems: t.Sequence[MeasuredLink], judged: t.Sequence[Json], outcome: Outcome, nics: t.Sequence[str]
) -> str:
    slow = explain([one for one in judged if one["verdict"] in ("fail", "warn")])
    parts = [*(one.problem for one in problems), slow]
    if outcome.problem:
        parts.append(outcome.problem)
    elif not nics:
        parts.append("no port of the link layer is up")
    return "; ".join(part for part in parts if part)


def _scope(problems: t.Sequence[MeasuredLink], judged: t.Sequence[Json], hosts: t.Sequence[str]) -> Json:
    bad = [one.nic for one in problems] + [one["nic"] for one in judged if one["verdict"] in ("fail", "warn")]
    return {**({"nic": list(dict.fromkeys(bad))} if bad else {}), **({"pair": list(hosts)} if hosts else {})}


def _evidence(problems: t.Sequence[MeasuredLink], found: t.Sequence[Json], outcome: Outcome) -> str:
    bad = {one.nic for one in problems}
    texts = [item["out"] for item in found if item["nic"] in bad and item.get("out")]
    return "\n".join([*texts, outcome.err.strip()])[-_TAIL:]


# infiniband_bandwidth: what is asked for, and the program that does it. Pure, private.


TESTS = ["ib_write_bw", "ib_read_bw", "ib_send_bw"]
# Above the TCP ports that the kernel hands out by itself; two runs at a time on a node must not meet.
PORT, SPAN, RUNS = 61000, 16, 280
# Seconds that a client tries to reach its server: the two nodes do not begin at the same moment, and CUDA is slow.
WINDOW = 30
_NIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(:[0-9]{1,3})?")
# What has an option here must not be given twice; -b makes a sum of both directions, the rest another output.
_OWN = re.compile(
    r"-[dipsDfFabnw].*|--(ib-dev|ib-port|port|size|duration|margin|CPU-freq|all|bidirectional|iters|limit_bw"
    r"|report_gbits|report-both|output|out_json|run_infinitely|use_cuda|reversed).*"
)

SPEC: Json = {
    "test": {"type": "str", "default": "ib_write_bw", "choices": TESTS},
    "path": {"type": "str"},
    "devices": {"type": "list", "elements": "str", "default": []},
    "partner": {"type": "str", "default": "same", "choices": ["same", "next"]},
    "size": {"type": "int", "default": 8388608},
    "duration": {"type": "int", "default": 5},
    "use_cuda": {"type": "bool", "default": False},
    "gpus": {"type": "dict", "default": {}},
    "topology": {"type": "dict"},
    "link_layer": {"type": "str", "default": "InfiniBand", "choices": ["InfiniBand", "Ethernet"]},
    "arguments": {"type": "list", "elements": "str", "default": []},
    "python": {"type": "str", "default": "python3"},
    "timeout": {"type": "float", "default": 600},
    **_checks.SPEC,
    **_checks.NODE,
    **_checks.SYSFS,
}


class InfinibandBandwidthError(ValueError):
    """What was asked for makes no sense; the text is fit for the user."""


def validate(params: t.Mapping[str, t.Any], launch: Launch) -> None:
    """Refuse what cannot be measured or judged, before anything starts."""
    for expectation in params["expect"]:
        validate_expectation(expectation)
    if launch.kind == "mpirun" or launch.ranks_per_node != 1 or launch.cpu_masks or params["visible_devices"]:
        raise InfinibandBandwidthError(
            "launcher is local or srun, without ranks_per_node, cpu_masks and visible_devices"
        )
    if launch.nodes > 2 or (launch.nodes > 1 and params["partner"] == "next"):
        raise InfinibandBandwidthError(
            f"{launch.nodes} nodes: one node for loopback, also to the next port, or a pair of nodes"
        )
    if params["duration"] < 3 or not 1 <= params["size"] <= 1 << 30:
        raise InfinibandBandwidthError(
            f"duration {params['duration']} (at least 3 s), size {params['size']} (1 to 2^30 bytes)"
        )
    devices = params["devices"]
    bad = [name for name in devices if not _NIC.fullmatch(name)]
    if bad or len(set(devices)) != len(devices):
        raise InfinibandBandwidthError(
            f"devices must be names such as mlx5_ib0 or mlx5_0:2, each once, not {', '.join(bad or devices)}"
        )
    if len(devices) > SPAN:
        raise InfinibandBandwidthError(f"{len(devices)} devices, at most {SPAN} at a time")
    bad = [word for word in params["arguments"] if _OWN.fullmatch(word)]
    if bad:
        raise InfinibandBandwidthError(
            f"arguments {' '.join(bad)}: this module sets them, or cannot read what comes of them"
        )


def gpus(params: t.Mapping[str, t.Any]) -> dict[str, int]:
    """Return the GPU of each port for GPUDirect; GPUs that share ports get one each as far as they last."""
    if not params["use_cuda"]:
        return {}
    found = {str(nic): _index(nic, gpu) for nic, gpu in params["gpus"].items()}
    listed = (params["topology"] or {}).get("gpus") or []
    near: list[tuple[int, list[str]]] = [
        (_index("topology", gpu.get("index")), gpu.get("nics") or []) for gpu in listed
    ]
    for nic in sorted({nic for dummy, nics in near for nic in nics}, key=payload.natural):
        able = [index for index, nics in near if nic in nics]
        free = [index for index in able if index not in found.values()]
        found.setdefault(nic, (free or able)[0])
    missing = [nic for nic in params["devices"] if nic.partition(":")[0] not in found and nic not in found]
    if not found or missing:
        raise InfinibandBandwidthError(
            f"use_cuda needs gpus or topology, which name the GPU of {', '.join(missing) or 'each port'}"
        )
    return found


def _index(where: str, value: t.Any) -> int:
    if isinstance(value, bool) or not str(value).isdigit():
        raise InfinibandBandwidthError(f"GPU of {where} is {value!r}, a number is needed")
    return int(value)


def payload_task(params: t.Mapping[str, t.Any], nodes: int) -> Json:
    """Return what the program on the nodes is told."""
    options = ["-s", str(params["size"]), "-D", str(params["duration"]), "-f", "1", "-F", "--report_gbits"]
    return {
        "program": program(params["path"], params["test"]),
        "options": [*options, *params["arguments"]],
        "devices": params["devices"],
        "gpus": gpus(params),
        "link_layer": params["link_layer"],
        "partner": params["partner"],
        "sysfs": params["sysfs"],
        "nodes": nodes,
        "port": PORT + SPAN * secrets.randbelow(RUNS),
        "window": WINDOW,
        "limit": params["duration"] + WINDOW,
    }


def program(path: str | None, test: str) -> str:
    """Return the program; a path is a directory, or the program itself."""
    if not path:
        return test
    return path if path.rstrip("/").rpartition("/")[2] == test else f"{path.rstrip('/')}/{test}"


def source() -> str:
    """Return the text of the program, also from inside the zip file that Ansible makes of a module."""
    return text_of(payload)


# infiniband_bandwidth: run the program on the nodes and judge what came back.


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Measure and return what the module returns; raises ValueError for options that make no sense."""
    about: Json = {"node": params["name"], "time": time.time(), "run": params["run"]}
    context = {"tool": "perftest", "version": None, "argv": [], "profile": params["profile"], "test": params["test"]}
    # CUDA would put the fastest first; the step must keep all CPUs, the program binds each test by itself.
    variables = {**({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if params["use_cuda"] else {}), **params["environment"]}
    options = {**({"cpu_bind": "none"} if params["launcher"] == "srun" else {}), **params["launcher_options"]}
    wanted = {**params, "environment": variables, "launcher_options": options}
    try:
        launch = _launch.here(wanted, job_name=CHECK, timeout=params["timeout"])
    except NotFound as exc:
        return _without("error", str(exc), {**about, "context": context})
    validate(params, launch)
    task = payload_task(params, launch.nodes)
    about["node"] = _node(params, launch)
    if check_mode:
        return _without("skipped", "check mode", {**about, "context": context})
    python = sys.executable if launch.kind == "local" else params["python"]
    argv, environment = _launch.command(launch, [python, "-", json.dumps(task)])
    outcome = run(argv, params["timeout"], source(), environment)
    about.update(seconds=outcome.seconds, context={**context, "argv": argv, "gpu_direct": params["use_cuda"]})
    known = {**task, "test": params["test"], "size": params["size"]}
    return {**result(outcome, known, params["expect"], about), "argv": argv, "environment": environment}


def _node(params: t.Mapping[str, t.Any], launch: Launch) -> str | None:
    """Two nodes are a pair, not a node."""
    if launch.nodes > 1:
        return None
    here = socket.gethostname().partition(".")[0] if launch.kind == "local" else None
    return params["name"] or (launch.hosts[0] if launch.hosts else here)


def _without(verdict: str, reason: str, about: Json) -> Json:
    one = record(CHECK, verdict=verdict, reason=reason, **about)
    return {"checks": [one], "results": [], "argv": [], "environment": {}}
