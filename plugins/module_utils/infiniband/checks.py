# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""infiniband_bandwidth: what came back from the nodes, and the check record. Pure, private."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import (
    Json,
    explain,
    judge,
    metric,
    overall,
    record,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.infiniband.payload import MARK
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import perftest
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.log import Log
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.srun_busy import busy

CHECK = "infiniband_bandwidth"
_TAIL = 2000


class Measured(t.NamedTuple):
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


def measure(nic: str, found: t.Sequence[Json], asked: Json) -> Measured:
    """Read what the client of a port printed; the server explains a failure better where it knows more."""
    client = next((item for item in found if item["nic"] == nic and item["role"] == "client"), None)
    if client is None:
        return Measured(nic, None, f"{nic}: no result", "infra", {})
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
    return Measured(nic, speed, problem, kind, facts)


def _server(client: Json, found: t.Sequence[Json], asked: Json) -> Json | None:
    servers = [item for item in found if item["role"] == "server"]
    if "partner" in client:
        mine = found.index(client)
        return next((item for item in found[mine + 1 : mine + 2] if item["role"] == "server"), None)
    position = [item["nic"] for item in found if item["role"] == "client"].index(client["nic"])
    return servers[position] if position < len(servers) else None


def _problem(client: Json, log: Log[perftest.Run], run: perftest.Run | None, asked: Json) -> tuple[str, str]:
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


def _verdict(problems: t.Sequence[Measured], judged: t.Sequence[Json], outcome: Outcome) -> str | None:
    """A link that does not carry the test is a finding, a test that did not run is none."""
    if any(one.kind in ("fabric", "hardware") for one in problems) or overall(judged) == "fail":
        return "fail"
    return "error" if problems or outcome.problem or not judged else None


def _blame(problems: t.Sequence[Measured]) -> str:
    return next((one.kind for one in problems if one.kind in ("fabric", "hardware")), "fabric")


def _reason(problems: t.Sequence[Measured], judged: t.Sequence[Json], outcome: Outcome, nics: t.Sequence[str]) -> str:
    slow = explain([one for one in judged if one["verdict"] in ("fail", "warn")])
    parts = [*(one.problem for one in problems), slow]
    if outcome.problem:
        parts.append(outcome.problem)
    elif not nics:
        parts.append("no port of the link layer is up")
    return "; ".join(part for part in parts if part)


def _scope(problems: t.Sequence[Measured], judged: t.Sequence[Json], hosts: t.Sequence[str]) -> Json:
    bad = [one.nic for one in problems] + [one["nic"] for one in judged if one["verdict"] in ("fail", "warn")]
    return {**({"nic": list(dict.fromkeys(bad))} if bad else {}), **({"pair": list(hosts)} if hosts else {})}


def _evidence(problems: t.Sequence[Measured], found: t.Sequence[Json], outcome: Outcome) -> str:
    bad = {one.nic for one in problems}
    texts = [item["out"] for item in found if item["nic"] in bad and item.get("out")]
    return "\n".join([*texts, outcome.err.strip()])[-_TAIL:]
