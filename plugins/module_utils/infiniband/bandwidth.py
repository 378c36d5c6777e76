# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""infiniband_bandwidth: the request, the program on the nodes, its reports, and the check record."""

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
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import Launch, NotFound, busy
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import text_of
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband import payload
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband.payload import MARK
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import perftest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Log

# From the reports of the nodes to a check record. Pure.


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
    """Return the ports that the nodes planned to measure, and the reports of clients and servers."""
    planned: list[str] = []
    programs = []
    for line in text.splitlines():
        # srun may have put the number of the task before it.
        dummy, separator, content = line.partition(MARK)
        try:
            entry = json.loads(content) if separator else None
        except ValueError:
            continue
        if isinstance(entry, dict):
            planned += [str(nic) for nic in entry.get("plan", [])]
            programs += [entry] if "nic" in entry else []
    return planned, programs


def measure(nic: str, programs: t.Sequence[Json], request: Json) -> MeasuredLink:
    """Return what the client of a port measured; the server's failure is added where it says more."""
    client = next((program for program in programs if program["nic"] == nic and program["role"] == "client"), None)
    if client is None:
        return MeasuredLink(nic, None, f"{nic}: no result", "infra", {})
    server = _server(client, programs, request)
    log = perftest.parse(client.get("out", ""))
    run = log.runs[-1] if log.runs else None
    facts = {
        key: client.get(key) for key in ("host", "partner", "link_layer", "numa_node", "cpus", "seconds", "argv", "rc")
    }
    facts.update(server=(server or {}).get("host"), gpu=run and run.gpu)
    problem, kind = _problem(client, log, run, request)
    if problem and server:
        server_cause = perftest.parse(server.get("out", "")).cause
        server_text = server.get("problem") or (
            server_cause.text if server_cause and server_cause.kind in ("fabric", "hardware", "config") else ""
        )
        if server_text and server_text not in problem:
            problem, kind = (
                f"{problem}; server: {server_text}",
                server_cause.kind if server_cause and kind == "infra" else kind,
            )
    speed = run.bandwidth(request["size"]) if run and not problem else None
    if problem and not problem.startswith(nic):
        problem = f"{nic}: {problem}"
    return MeasuredLink(nic, speed, problem, kind, facts)


def _server(client: Json, programs: t.Sequence[Json], request: Json) -> Json | None:
    servers = [program for program in programs if program["role"] == "server"]
    if "partner" in client:
        client_position = programs.index(client)
        return next(
            (program for program in programs[client_position + 1 : client_position + 2] if program["role"] == "server"),
            None,
        )
    position = [program["nic"] for program in programs if program["role"] == "client"].index(client["nic"])
    return servers[position] if position < len(servers) else None


def _problem(
    client: Json, log: Log[perftest.PerftestRun], run: perftest.PerftestRun | None, request: Json
) -> tuple[str, str]:
    """Return why the number cannot be trusted, and its class: status, text and link layer must all agree."""
    if client.get("problem"):
        return client["problem"], "config"
    if log.cause:
        return log.cause.text, log.cause.kind
    if client["rc"] != 0:
        ended = "did not end" if client["rc"] is None else f"exit status {client['rc']}"
        return f"{request['test']}: {ended}", "infra"
    if run is None or not run.ok:
        return f"{request['test']} printed no complete table", "infra"
    if run.link_layer != request["link_layer"]:
        return f"{request['test']} used {run.link_layer}, not {request['link_layer']}", "config"
    if run.device != client["nic"].partition(":")[0]:
        return f"{request['test']} measured {run.device}", "config"
    if run.bidirectional or run.bandwidth(request["size"]) is None:
        return f"{request['test']} printed no average of one direction at {request['size']} bytes", "infra"
    return "", "hardware"


def result(outcome: Outcome, request: Json, expectations: t.Sequence[Json], about: Json) -> Json:
    """Return the module's result without its command line."""
    planned, programs = reports(outcome.out)
    nics = list(request["devices"]) or list(dict.fromkeys(planned))
    taken = busy(outcome.err)
    if taken and not programs:
        return {"checks": [record(CHECK, verdict="skipped", reason=taken, **about)], "results": []}
    expected = any(limit["check"] == CHECK for limit in expectations)
    if not nics and not expected and outcome.rc == 0:
        return {
            "checks": [record(CHECK, verdict="skipped", reason=f"no {request['link_layer']}", **about)],
            "results": [],
        }
    measured = [measure(nic, programs, request) for nic in nics]
    metrics = [metric("bandwidth", link.gbps, "Gb/s", nic=link.nic, test=request["test"]) for link in measured]
    judged = judge(CHECK, metrics, expectations, request["nodes"])
    problems = [link for link in measured if link.problem]
    samples = [
        {"nic": link.nic, "bandwidth": link.gbps, **link.facts, "problem": link.problem or None} for link in measured
    ]
    missing = sorted({program["missing"] for program in programs if program.get("missing")})
    if missing:
        about = {**about, "context": {**about.get("context", {}), "missing": missing}}
    hosts = sorted({program["host"] for program in programs})
    if request["nodes"] == 1 and len(hosts) == 1:
        about = {**about, "node": about["node"] or hosts[0]}
    check = record(
        CHECK,
        metrics=judged,
        verdict=_verdict(problems, judged, outcome),
        blame=_blame(problems),
        reason=_reason(problems, judged, outcome, nics),
        scope=_scope(problems, judged, hosts if request["nodes"] > 1 else []),
        samples=samples,
        evidence=_evidence(problems, programs, outcome),
        **about,
    )
    return {"checks": [check], "results": samples}


def _verdict(problems: t.Sequence[MeasuredLink], judged: t.Sequence[Json], outcome: Outcome) -> str | None:
    """Return fail for a link that does not carry the test, and error for a test that did not run."""
    if any(link.kind in ("fabric", "hardware") for link in problems) or overall(judged) == "fail":
        return "fail"
    return "error" if problems or outcome.problem or not judged else None


def _blame(problems: t.Sequence[MeasuredLink]) -> str:
    return next((link.kind for link in problems if link.kind in ("fabric", "hardware")), "fabric")


def _reason(
    problems: t.Sequence[MeasuredLink], judged: t.Sequence[Json], outcome: Outcome, nics: t.Sequence[str]
) -> str:
    slow = explain([entry for entry in judged if entry["verdict"] in ("fail", "warn")])
    texts = [*(link.problem for link in problems), slow]
    if outcome.problem:
        texts.append(outcome.problem)
    elif not nics:
        texts.append("no port of the link layer is up")
    return "; ".join(text for text in texts if text)


def _scope(problems: t.Sequence[MeasuredLink], judged: t.Sequence[Json], hosts: t.Sequence[str]) -> Json:
    nics = [link.nic for link in problems] + [entry["nic"] for entry in judged if entry["verdict"] in ("fail", "warn")]
    return {**({"nic": list(dict.fromkeys(nics))} if nics else {}), **({"pair": list(hosts)} if hosts else {})}


def _evidence(problems: t.Sequence[MeasuredLink], programs: t.Sequence[Json], outcome: Outcome) -> str:
    nics = {link.nic for link in problems}
    texts = [program["out"] for program in programs if program["nic"] in nics and program.get("out")]
    return "\n".join([*texts, outcome.err.strip()])[-_TAIL:]


# The request, and the task of the program on the nodes.


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
    """The request makes no sense; the text is fit for the user."""


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
    invalid = [name for name in devices if not _NIC.fullmatch(name)]
    if invalid or len(set(devices)) != len(devices):
        raise InfinibandBandwidthError(
            f"devices must be names such as mlx5_ib0 or mlx5_0:2, each once, not {', '.join(invalid or devices)}"
        )
    if len(devices) > SPAN:
        raise InfinibandBandwidthError(f"{len(devices)} devices, at most {SPAN} at a time")
    invalid = [argument for argument in params["arguments"] if _OWN.fullmatch(argument)]
    if invalid:
        raise InfinibandBandwidthError(
            f"arguments {' '.join(invalid)}: this module sets them, or cannot read what comes of them"
        )


def gpus(params: t.Mapping[str, t.Any]) -> dict[str, int]:
    """Return the GPU of each port for GPUDirect; GPUs that share ports get one each as far as they last."""
    if not params["use_cuda"]:
        return {}
    assigned = {str(nic): _index(nic, gpu) for nic, gpu in params["gpus"].items()}
    listed = (params["topology"] or {}).get("gpus") or []
    near: list[tuple[int, list[str]]] = [
        (_index("topology", gpu.get("index")), gpu.get("nics") or []) for gpu in listed
    ]
    for nic in sorted({nic for dummy, nics in near for nic in nics}, key=payload.natural):
        able = [index for index, nics in near if nic in nics]
        free = [index for index in able if index not in assigned.values()]
        assigned.setdefault(nic, (free or able)[0])
    unassigned = [nic for nic in params["devices"] if nic.partition(":")[0] not in assigned and nic not in assigned]
    if not assigned or unassigned:
        raise InfinibandBandwidthError(
            f"use_cuda needs gpus or topology, which name the GPU of {', '.join(unassigned) or 'each port'}"
        )
    return assigned


def _index(subject: str, value: t.Any) -> int:
    if isinstance(value, bool) or not str(value).isdigit():
        raise InfinibandBandwidthError(f"GPU of {subject} is {value!r}, a number is needed")
    return int(value)


def payload_task(params: t.Mapping[str, t.Any], nodes: int) -> Json:
    """Return the task of the program on the nodes, which gets it as JSON."""
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


# Run the program on the nodes and judge its reports.


def perform(params: t.Mapping[str, t.Any], check_mode: bool) -> Json:
    """Measure and return the module's result; raises ValueError for options that make no sense."""
    about: Json = {"node": params["name"], "time": time.time(), "run": params["run"]}
    context = {"tool": "perftest", "version": None, "argv": [], "profile": params["profile"], "test": params["test"]}
    # CUDA would put the fastest first; the step must keep all CPUs, the program binds each test by itself.
    variables = {**({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if params["use_cuda"] else {}), **params["environment"]}
    options = {**({"cpu_bind": "none"} if params["launcher"] == "srun" else {}), **params["launcher_options"]}
    launch_params = {**params, "environment": variables, "launcher_options": options}
    try:
        launch = _launch.here(launch_params, job_name=CHECK, timeout=params["timeout"])
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
    request = {**task, "test": params["test"], "size": params["size"]}
    return {**result(outcome, request, params["expect"], about), "argv": argv, "environment": environment}


def _node(params: t.Mapping[str, t.Any], launch: Launch) -> str | None:
    """Return the node's name; two nodes are a pair and have none."""
    if launch.nodes > 1:
        return None
    hostname = socket.gethostname().partition(".")[0] if launch.kind == "local" else None
    return params["name"] or (launch.hosts[0] if launch.hosts else hostname)


def _without(verdict: str, reason: str, about: Json) -> Json:
    check = record(CHECK, verdict=verdict, reason=reason, **about)
    return {"checks": [check], "results": [], "argv": [], "environment": {}}
