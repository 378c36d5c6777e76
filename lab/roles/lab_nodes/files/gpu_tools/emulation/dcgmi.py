# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dcgmi of DCGM 4.4 with its host engine running: discovery -l, health and diag -j. Profiling there is none."""

from __future__ import annotations

import json
import os
import sys
import time
import typing as t
from pathlib import Path

from emulation.machine import Gpu, Json, Machine

VERSION = "4.4.2-emulated"
UNCONNECTED = (
    "Error: unable to establish a connection to the specified host: localhost\n"
    "Error: Unable to connect to host engine. Host engine connection invalid/disconnected."
)
UNWATCHED = "Error: Health watches not enabled. Please enable watches. "
# DCGM_ST_*, negative numbers of which the shell sees the low eight bits.
UNCONNECTED_STATUS, GENERIC, BAD_PARAMETER, FAILED, ISOLATE, RUNNING = 235, 253, 255, 226, 205, 217
LEVELS: list[list[tuple[str, str]]] = [
    [("Deployment", "software")],
    [("Hardware", "memory"), ("Integration", "pcie")],
    [("Hardware", "diagnostic"), ("Hardware", "nvbandwidth"), ("Stress", "targeted_power"), ("Stress", "memtest")],
    [("Stress", "pulse_test"), ("Hardware", "eud")],
]
NAMES = {name: category for level in LEVELS for category, name in level}
CATEGORIES = ("Deployment", "Hardware", "Integration", "Stress")


def main(machine: Machine, name: str, arguments: t.Sequence[str]) -> int:
    words = list(arguments)
    verb = words.pop(0) if words else ""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        chosen = os.environ["CUDA_VISIBLE_DEVICES"]
        print(
            f"WARNING: CUDA_VISIBLE_DEVICES is set to {chosen} on dcgmi process. This does not affect which GPUs are\n"
        )
    state = str(machine.faults.get("dcgm") or "")
    if verb == "discovery" and state != "stopped":
        return _discovery(machine)
    if verb == "health" and state != "stopped":
        return _health(machine, words, state)
    if verb == "diag":
        return _diag(machine, words, state)
    print(UNCONNECTED if verb in ("discovery", "health") else "ERROR: Invalid subsystem.")
    return UNCONNECTED_STATUS if verb in ("discovery", "health") else BAD_PARAMETER


def _gpus(machine: Machine) -> list[Gpu]:
    """The host engine is a service: no cgroup of a job hides a GPU from it."""
    return [gpu for gpu in machine.all_gpus() if not machine.listed("missing_gpu", gpu.index)]


def _discovery(machine: Machine) -> int:
    gpus = _gpus(machine)
    print(f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'} found.")
    print("+--------+----------------------------------------------------------------------+")
    for number, gpu in enumerate(gpus):
        print(f"| {number:<6} | Name: {machine['gpu']['name']:<62} |\n|        | Device UUID: {gpu.uuid:<55} |")
    print("0 NvSwitches found.\n0 ConnectX found.\n0 CPUs found.")
    return 0


def _health(machine: Machine, words: list[str], state: str) -> int:
    mark = Path(os.environ.get("GPU_TOOLS_STATE") or "/run/lab/state.json").with_name("dcgm_watches")
    if "-s" in words:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text("a\n", encoding="utf-8")
        print("Health monitor systems set successfully.")
        return 0
    if state == "unwatched" and not mark.exists():
        print(UNWATCHED)
        return GENERIC
    body: Json = {}
    for number, gpu in enumerate(_gpus(machine)):
        errors = {system: (health, text) for system, health, text in _incidents(machine, gpu, number)}
        if errors:
            found = {system: {"value": health, "overflow": [text]} for system, (health, text) in errors.items()}
            value = "Failure" if any(health == "Failure" for health, dummy in errors.values()) else "Warning"
            body[str(number)] = {"value": value, "children": {"Errors": {"children": found}}}
    values = {entity["value"] for entity in body.values()}
    overall = next((value for value in ("Failure", "Warning") if value in values), "Healthy")
    document = {"Overall Health": {"value": overall}, **({"GPU": {"children": body}} if body else {})}
    print(styled({"body": document, "header": ["Health Monitor Report"]}))
    return 0


def _incidents(machine: Machine, gpu: Gpu, number: int) -> t.Iterator[tuple[str, str, str]]:
    errors = machine.fault("ecc", gpu.index)
    if errors:
        text = f"Detected {errors} volatile double-bit ECC error(s) in GPU {number}."
        yield "Memory system", "Failure", f"{text} Drain the GPU and reset it or reboot the node."
    if machine.fault("nvlink_down", gpu.index):
        text = f"GPU {number}'s NvLink link {machine.fault('nvlink_down', gpu.index)[0]} is currently down"
        yield "NVLINK system", "Failure", f"{text} Check DCGM and system logs for errors."
    if machine.listed("reset_required", gpu.index):
        text = f"GPU {number} requires a reset to recover from a fault. Recovery action: 1 (GPU_RESET)."
        yield "Driver", "Failure", f"{text} Terminate all GPU processes and reset the GPU."
    if machine.fault("hot", gpu.index):
        yield "Thermal system", "Warning", f"Detected clocks event due to thermal violation in GPU {number}."


def _diag(machine: Machine, words: list[str], state: str) -> int:
    if words[:1] != ["-j"]:
        print("The emulated dcgmi diag has its results as JSON only: diag -j -r LEVEL", file=sys.stderr)
        return BAD_PARAMETER
    options = dict(zip(words[1::2], words[2::2]))
    asked = options.get("-r", "1")
    if state == "busy":
        text = "A diag instance is already running, cannot run a new diag until the current one finishes"
        return _error(f"Error: Unable to complete diagnostic. Return: (-39) : {text}\n", RUNNING)
    of_level = [name for level in LEVELS[: int(asked) if asked.isdigit() else 0] for dummy, name in level]
    chosen = of_level or asked.split(",")
    if not set(chosen) <= set(NAMES):
        text = "Requested tests were not found among possible test choices."
        return _error(f"Error: Unable to complete diagnostic. Return: (-58) : {text}\n", 198)
    named = [int(number) for number in options["-i"].split(",")] if "-i" in options else None
    gpus = [(number, gpu) for number, gpu in enumerate(_gpus(machine)) if named is None or number in named]
    time.sleep(machine["seconds"])
    tests = {name: _test(machine, name, gpus) for name in chosen}
    categories = [
        {"category": category, "tests": [tests[name] for name in chosen if NAMES[name] == category]}
        for category in CATEGORIES
        if category in {NAMES[name] for name in chosen}
    ]
    entities = [{"device_id": "20b0", "entity_id": number, "serial_num": gpu.serial} for number, gpu in gpus]
    print(
        styled(
            {
                "DCGM Diagnostic": {"test_categories": categories},
                "entity_groups": [{"entities": entities, "entity_group": "GPU", "entity_group_id": 1}],
                "metadata": {"Driver Version Detected": machine["driver"], "version": VERSION},
            }
        )
    )
    severities = [
        warning["error_severity"]
        for test in tests.values()
        for result in test["results"]
        for warning in result.get("warnings", [])
    ]
    return ISOLATE if 2 in severities else FAILED if severities else 0


def _error(text: str, status: int) -> int:
    print(styled({"DCGM Diagnostic": {"runtime_error": text, "version": VERSION}}) + "\n")
    return status


def _test(machine: Machine, name: str, gpus: t.Sequence[tuple[int, Gpu]]) -> Json:
    results = [_result(machine, name, number, gpu) for number, gpu in gpus]
    statuses = [result["status"] for result in results]
    return {
        "name": name,
        "results": results,
        "test_summary": {"status": next((one for one in ("Fail", "Pass") if one in statuses), "Skip")},
    }


def _result(machine: Machine, name: str, number: int, gpu: Gpu) -> Json:
    entity: Json = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": number}
    if name == "eud":  # it needs packages of its own
        return {**entity, "status": "Skip"}
    found = _warning(machine, name, number, gpu)
    return {**entity, "status": "Fail", "warnings": [found]} if found else {**entity, "status": "Pass"}


def _warning(machine: Machine, name: str, number: int, gpu: Gpu) -> Json | None:
    """The error of a test for a GPU, with the code, category and severity of dcgm_errors.c."""
    if name == "software" and machine.fault("remap", gpu.index) == "pending":
        return _entry(f"GPU {number} had uncorrectable memory errors and row remapping is pending.", 85, 10, 6)
    if name in ("memory", "memtest") and machine.fault("ecc", gpu.index):
        return _entry(f"Found {machine.fault('ecc', gpu.index)} faulty memory elements on GPU {number}", 52, 10, 2)
    if name == "nvbandwidth" and machine.speed(gpu) < 0.9:
        return _entry(f"Bandwidth of GPU {number} in direction h2d of 12.00 did not exceed minimum", 30, 13, 4)
    return None


def _entry(text: str, code: int, category: int, severity: int) -> Json:
    return {"warning": text, "error_id": code, "error_category": category, "error_severity": severity}


def styled(value: t.Any, depth: int = 0) -> str:
    """Write JSON as jsoncpp's styled writer does: keys in their order, brackets of a value on a line of their own."""
    tab = "\t" * depth
    if isinstance(value, dict) and value:
        parts = []
        for key in sorted(value):
            below = f"\n{tab}\t" if isinstance(value[key], (dict, list)) and value[key] else ""
            parts.append(f"{tab}\t{json.dumps(key)} : {below}{styled(value[key], depth + 1)}")
        return "{\n" + ",\n".join(parts) + f"\n{tab}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"{tab}\t{styled(item, depth + 1)}" for item in value) + f"\n{tab}]"
    return json.dumps(value)
