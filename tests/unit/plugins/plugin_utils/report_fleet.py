# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An invented certification of a fleet of any size, by a seed: check records and the certificate."""

from __future__ import annotations

import dataclasses
import json
import random
import typing as t
from pathlib import Path

Json = t.Dict[str, t.Any]
LEAF = 32
START = 1795187041
SOURCE = "Azure/azurehpc-health-checks conf/nd96isr_h100_v5.conf (0e0a1ac2)"
# (check, metric, unit, what is normal, spread, limit, devices)
MEASURED: tuple[tuple[str, str, str, float, float, str, int], ...] = (
    ("gpu_bandwidth.h2d", "h2d", "GB/s", 55.1, 0.35, ">= 48", 8),
    ("gpu_bandwidth.d2h", "d2h", "GB/s", 54.8, 0.35, ">= 48", 8),
    ("gpu_bandwidth.p2p", "p2p", "GB/s", 372.0, 3.0, ">= 335", 8),
    ("infiniband_bandwidth", "write", "Gb/s", 391.0, 0.6, ">= 380", 8),
    ("storage_bandwidth.write", "write", "GB/s", 21.4, 0.5, "", 1),
    ("storage_bandwidth.read", "read", "GB/s", 43.9, 0.9, "", 1),
    ("hpl", "performance", "TFLOP/s", 412.0, 3.5, "", 1),
    ("gpu_temperature", "temperature", "C", 41.0, 3.0, "<= 85", 8),
    ("clock_skew", "skew", "s", 0.01, 0.004, "<= 2", 1),
    ("gpu_memory_idle", "used", "MiB", 4.0, 0.0, "<= 15", 8),
    ("munge", "round_trip", "s", 0.02, 0.004, "", 1),
    ("memory", "total", "GiB", 1771.0, 0.0, ">= 1717", 1),
)
COUNTED = (
    "gpu_count gpu_model gpu_ecc.volatile gpu_ecc.aggregate gpu_remap gpu_retired gpu_xid gpu_pcie gpu_nvlink "
    "gpu_nvlink_errors gpu_throttle gpu_clocks gpu_persistence gpu_topology gpu_pinning gpu_recovery_action gpu_driver "
    "gpu_fabric_state gpu_power_limit gpu_processes infiniband_ports infiniband_rate infiniband_flaps "
    "infiniband_counters infiniband_firmware nvme_scratch nvme_probe nvme_wear disk_space.root disk_space.spool "
    "inodes.root inodes.spool shared_directory root_writable swap cpu_count cpu_online edac memory_modules kernel_log "
    "slurm_version hugepages limits sysctl leftover_processes mounts"
).split()
NCCL = ("all_reduce", "alltoall")
CHECKS = [row[0] for row in MEASURED] + COUNTED + [f"nccl_tests.{name}" for name in NCCL]


@dataclasses.dataclass(frozen=True)
class Invented:
    """A certification that never was."""

    certificate: Json
    records: t.Callable[[], t.Iterator[Json]]


def name_of(index: int, nodes: int) -> str:
    return f"gpu-{index + 1:0{len(str(nodes))}d}"


def faults(nodes: int, rng: random.Random) -> dict[int, str]:
    """Return which node has what: about one in two hundred, at least three."""
    kinds = ["slow_gpu", "slow_rail", "flaky", "xid", "clock", "silent", "slow_gpu", "disk"]
    chosen = rng.sample(range(nodes), min(nodes - 1, max(3, nodes // 160)))
    return {index: kinds[place % len(kinds)] for place, index in enumerate(chosen)}


def invented(nodes: int = 256, seed: int = 1, checks: int = 60, run: str = "20261121T210000Z") -> Invented:
    """Return a certification of so many nodes with so many checks each."""
    bad = faults(nodes, random.Random(seed))
    chosen = CHECKS[-checks:] if checks < len(CHECKS) else CHECKS
    return Invented(
        _certificate(nodes, bad, random.Random(seed + 1), run),
        lambda: _records(nodes, bad, random.Random(seed + 2), run, set(chosen)),
    )


def store(found: Invented, folder: Path) -> Path:
    """Write it as a run directory has it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "certificate.json").write_text(json.dumps(found.certificate, sort_keys=True) + "\n")
    with (folder / "records.jsonl").open("w") as lines:
        for record in found.records():
            lines.write(json.dumps(record, sort_keys=True, separators=(",", ":")) + "\n")
    return folder


def _record(run: str, node: str, check: str, metrics: list[Json], reason: str = "", **rest: t.Any) -> Json:
    verdict = rest.get("verdict") or next(
        (v for v in ("fail", "error", "warn", "pass") if any(m["verdict"] == v for m in metrics)), "unjudged"
    )
    said = [
        f"{m['name']} (gpu={m.get('gpu')}): {m['value']:g} {m['unit']}, expected {m['expected']}"
        for m in metrics
        if m["verdict"] == "fail"
    ]
    return {
        "schema": 1,
        "run": run,
        "node": node,
        "check": check,
        "time": START + 100.5,
        "seconds": 1.25,
        "verdict": verdict,
        "class": {"fail": "hardware", "error": "infra"}.get(verdict),
        "reason": reason or "; ".join(said),
        "scope": {},
        "metrics": metrics,
        "samples": rest.get("samples", []),
        "evidence": "",
        "context": {
            "tool": check.partition(".")[0],
            "version": "1.0",
            "profile": "ND96isr_H100_v5",
            "driver": "550.90.07",
        },
    }


def _metric(name: str, value: float, unit: str, wanted: str, **labels: t.Any) -> Json:
    sign, dummy, limit = wanted.partition(" ")
    verdict, ratio = "unjudged", None
    if wanted:
        ratio = round(value / float(limit), 4) if float(limit) else None
        verdict = (
            "pass"
            if {">=": value >= float(limit), "<=": value <= float(limit), "==": value == float(limit)}[sign]
            else "fail"
        )
    source = SOURCE if wanted else None
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "expected": wanted or None,
        "source": source,
        "ratio": ratio,
        "verdict": verdict,
        **labels,
    }


def _records(nodes: int, bad: dict[int, str], rng: random.Random, run: str, chosen: set[str]) -> t.Iterator[Json]:
    for index in range(nodes):
        node, fault = name_of(index, nodes), bad.get(index, "")
        if fault == "silent":
            continue
        slow = rng.randrange(8)
        for check, name, unit, normal, spread, wanted, devices in MEASURED:
            if check in chosen:
                factor = [_factor(fault, check) if device in (slow, 0) else 1.0 for device in range(devices)]
                labels: list[dict[str, int]] = [{"gpu": d} for d in range(devices)] if devices > 1 else [{}]
                values = [round(abs(rng.gauss(normal, spread)) * f, 4) for f in factor]
                yield _record(
                    run, node, check, [_metric(name, v, unit, wanted, **label) for v, label in zip(values, labels)]
                )
        for check in COUNTED:
            if check in chosen:
                yield _counted(run, node, check, fault, rng)
        for collective in NCCL:
            if f"nccl_tests.{collective}" in chosen:
                yield _nccl(run, node, collective, fault, rng)


def _factor(fault: str, check: str) -> float:
    worse = {
        ("slow_gpu", "gpu_bandwidth.h2d"): 0.72,
        ("slow_gpu", "gpu_bandwidth.d2h"): 0.91,
        ("slow_gpu", "hpl"): 0.86,
    }
    worse.update(
        {
            ("slow_rail", "infiniband_bandwidth"): 0.51,
            ("disk", "storage_bandwidth.write"): 0.6,
            ("clock", "clock_skew"): 731.0,
        }
    )
    return worse.get((fault, check), 1.0)


def _counted(run: str, node: str, check: str, fault: str, rng: random.Random) -> Json:
    if check == "gpu_pinning":
        return _record(run, node, check, [], "the driver does not tell", verdict="skipped")
    if (fault, check) in {("xid", "gpu_xid"), ("disk", "nvme_scratch")}:
        found = _metric("findings", 1, "count", "== 0")
        text = {"xid": "XID 79 on GPU 3: it has fallen off the bus; isolate", "disk": "7 of 8 disks in the array"}[
            fault
        ]
        return _record(run, node, check, [found], text)
    if rng.random() < 0.0004:
        return _record(run, node, check, [], f"{check} was not finished within 30 s", verdict="error")
    return _record(run, node, check, [_metric("findings", 0, "count", "== 0")])


def _nccl(run: str, node: str, collective: str, fault: str, rng: random.Random) -> Json:
    top = {"all_reduce": 478.0, "alltoall": 341.0}[collective] * rng.gauss(1, 0.006)
    top *= {"slow_gpu": 0.8, "flaky": 0.93}.get(fault, 1.0)
    sizes = [2**power for power in range(10, 34, 2)]
    samples = [
        {"collective": collective, "size": size, "busbw": round(top / (1 + 9e7 / size * 0.35), 3), "time_us": 30.0}
        for size in sizes
    ]
    limit = {"all_reduce": ">= 460", "alltoall": ""}[collective]
    peak = _metric("busbw", samples[-1]["busbw"], "GB/s", limit, collective=collective, size=sizes[-1])
    return _record(run, node, f"nccl_tests.{collective}", [peak], samples=samples)


def _certificate(nodes: int, bad: dict[int, str], rng: random.Random, run: str) -> Json:
    names = [name_of(index, nodes) for index in range(nodes)]
    silent = {index for index, fault in bad.items() if fault == "silent"}
    watched = {index for index, fault in bad.items() if fault == "flaky"}
    rounds = _rounds(nodes, bad, silent, rng)
    told = {
        names[index]: _node(index, bad.get(index, ""), index in silent, index in watched, rounds, names[index])
        for index in range(nodes)
    }
    untested = [{"node": names[index], "reason": "slurmd does not answer"} for index in sorted(silent)]
    at_full = len(names) - len(bad)
    return {
        "schema": 1,
        "run": run,
        "cluster": "h100-west",
        "time": START + 1750,
        "seconds": 1702.4,
        "profile": "ND96isr_H100_v5",
        "planned": nodes,
        "reached": nodes - len(untested),
        "nodes": told,
        "untested": untested,
        "miss_bound": {
            "q": 0.5,
            "probability": 0.0031,
            "text": "A fault that shows in half of the tests is missed with at most 0.31 % per node.",
        },
        "findings": _findings(names, bad),
        "rounds": rounds,
        "ladder": _ladder(at_full, names),
        "plan": {
            "rounds": 7,
            "tests": sum(len(r["tests"]) for r in rounds),
            "wall_seconds": 1860,
            "gpu_hours": round(nodes * 8 * 0.52, 1),
            "cost": None,
            "round_robin": nodes <= 16,
            "text": [f"{nodes} nodes in 7 rounds of pairs", "about 31 minutes"],
        },
        "options": {"k": 3, "drain_at": 0.95, "clear_at": 0.004, "seed": 7},
        "tools": {
            "all_reduce_perf": {"version": "2.17.6", "sha256": "3f" * 32},
            "nvbandwidth": {"version": "0.8", "sha256": "ab" * 32},
        },
        "profile_sha256": "51" * 32,
        "records_sha256": "c0" * 32,
        "agent_sha256": "9d" * 32,
    }


def _node(index: int, fault: str, silent: bool, watched: bool, rounds: list[Json], name: str) -> Json:
    said = {
        "slow_gpu": "h2d (gpu=3): 39.7 GB/s, expected >= 48",
        "slow_rail": "slow with 6 of 6 partners on rail 2",
        "flaky": "failed 2 of 6 tests",
        "xid": "XID 79 on GPU 3",
        "clock": "skew: 7.3 s, expected <= 2",
        "silent": "slurmd does not answer",
        "disk": "7 of 8 disks in the array",
    }
    status = "untested" if silent else "watched" if watched else "drained" if fault else "cleared"
    mine = [test for one in rounds for test in one["tests"] if name in test["nodes"]] if fault else []
    posterior = {"untested": None, "watched": 0.41, "drained": 0.998, "cleared": 0.0008}[status]
    kind = {"clock": "config", "silent": "infra"}.get(fault, "hardware") if fault else None
    return {
        "status": status,
        "posterior": posterior,
        "reason": said.get(fault, ""),
        "class": kind,
        "leaf": f"leaf-{index // LEAF + 1:02d}",
        "physical_host": f"BLZ{index // 2:06d}",
        "tests": len(mine) or 6,
        "failed": sum(test["verdict"] == "fail" for test in mine),
    }


def _rounds(nodes: int, bad: dict[int, str], silent: set[int], rng: random.Random) -> list[Json]:
    alive = [index for index in range(nodes) if index not in silent]
    rounds = [
        _single("reach", list(range(nodes)), silent, nodes),
        _single(
            "local", alive, {i for i, f in bad.items() if f in ("slow_gpu", "xid", "disk", "clock")} - silent, nodes
        ),
    ]
    suspects: dict[str, float] = {
        name_of(i, nodes): 0.74 for i, f in bad.items() if f in ("slow_gpu", "xid", "disk", "clock")
    }
    for number in (1, 2, 3):
        rng.shuffle(alive)
        pairs = [alive[i : i + 2] for i in range(0, len(alive) - 1, 2)]
        if len(alive) % 2 and pairs:
            pairs[-1] = [*pairs[-1], alive[-1]]
        rounds.append(_pairs("pair", number, pairs, bad, suspects, nodes, rng))
    good = [i for i in alive if i not in bad]
    for number in (1, 2):
        wanted = [int(name.rpartition("-")[2]) - 1 for name in list(suspects)]
        pairs = [[i, rng.choice(good)] for i in wanted if i not in silent]
        rounds.append(_pairs("confirm", number, pairs, bad, suspects, nodes, rng))
    return rounds


def _single(stage: str, members: list[int], failed: set[int], nodes: int) -> Json:
    word = "error" if stage == "reach" else "fail"
    tests = [
        {
            "id": f"{stage}-{i}",
            "nodes": [name_of(i, nodes)],
            "verdict": word if i in failed else "pass",
            "ratio": None,
            "value": None,
            "unit": "",
        }
        for i in members
    ]
    suspects = {} if stage == "reach" else {name_of(i, nodes): 0.74 for i in failed}
    return {"id": stage, "stage": stage, "round": 0, "tests": tests, "suspects": suspects}


def _pairs(
    stage: str,
    number: int,
    pairs: list[list[int]],
    bad: dict[int, str],
    suspects: dict[str, float],
    nodes: int,
    rng: random.Random,
) -> Json:
    tests = []
    for place, pair in enumerate(pairs):
        shows = any(
            bad.get(i) in ("slow_gpu", "slow_rail", "xid", "disk", "clock")
            or (bad.get(i) == "flaky" and rng.random() < 0.4)
            for i in pair
        )
        shows = shows or rng.random() < 0.003
        ratio = round(rng.gauss(0.72, 0.05) if shows else rng.gauss(1, 0.008), 3)
        tests.append(
            {
                "id": f"{stage}{number}-{place}",
                "nodes": [name_of(i, nodes) for i in pair],
                "verdict": "fail" if shows else "pass",
                "ratio": ratio,
                "value": round(ratio * 388, 1),
                "unit": "GB/s",
            }
        )
        for name in (name_of(i, nodes) for i in pair):
            now = suspects.get(name, 0.02)
            odds = now / (1 - now) * (9.0 if shows else 0.09)
            if shows or name in suspects:
                suspects[name] = min(0.9999, odds / (1 + odds))
    told = {name: round(p, 5) for name, p in suspects.items() if p > 0.0005}
    return {"id": f"{stage}{number}", "stage": stage, "round": number, "tests": tests, "suspects": told}


def _findings(names: list[str], bad: dict[int, str]) -> list[Json]:
    rails = [names[i] for i, fault in bad.items() if fault == "slow_rail"]
    slow = [names[i] for i, fault in bad.items() if fault == "slow_gpu"]
    found: list[Json] = []
    if slow:
        text = "Host to device copies lie far below the fleet's median of 55.1 GB/s"
        found.append(_finding("outlier", text, slow, [], ("h2d", 39.7, 55.1)))
    if rails:
        text = "Rail 2 is slow on these nodes only, with every partner: a port or cable, not the switch"
        found.append(_finding("fabric", text, rails, ["mlx5_2"], ("busbw", 201.0, 388.0)))
    return found


def _finding(kind: str, text: str, nodes: list[str], suspects: list[str], seen: tuple[str, float, float]) -> Json:
    metric, value, expected = seen
    about = {"metric": metric, "value": value, "expected": expected}
    return {"kind": kind, "text": text, "nodes": nodes, "suspects": suspects, **about}


def _ladder(top: int, names: list[str]) -> list[Json]:
    steps = sorted({step for step in (2, 8, 32, 128, 512, 2048) if step < top} | {top})
    rungs = []
    for collective, base, limit in (("all_reduce", 388.0, 350.0), ("alltoall", 61.0, 50.0)):
        for place, step in enumerate(steps):
            value = round(base * (1 - 0.012 * place) * (0.82 if collective == "alltoall" and step == top else 1), 1)
            rungs.append(
                {
                    "nodes": step,
                    "hostlist": f"{names[0]} and {step - 1} more",
                    "collective": collective,
                    "value": value,
                    "unit": "GB/s",
                    "expected": f">= {limit:g}",
                    "ratio": round(value / limit, 3),
                    "verdict": "pass" if value >= limit else "warn",
                }
            )
    return rungs
