# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvbandwidth 0.8, without its multinode tests."""

from __future__ import annotations

import json
import sys
import typing as t

from emulation import nvbandwidth_tests as tests
from emulation.machine import Machine

NOTE = (
    "NOTE: The reported results may not reflect the full capabilities of the platform.\n"
    "Performance can vary with software drivers, hardware clocks, and system topology.\n"
)
USAGE = "nvbandwidth CLI:\n  -h [ --help ]                Produce help message\n"
WITH_VALUE = {"-b": "--bufferSize", "-i": "--testSamples", "--bufferSize": "", "--testSamples": "", "--loopCount": ""}
MANY = {"-t": "--testcase", "-p": "--testcasePrefixes"}
FLAGS = {
    "-h": "--help",
    "-l": "--list",
    "-v": "--verbose",
    "-s": "--skipVerification",
    "-d": "--disableAffinity",
    "-m": "--useMean",
    "-j": "--json",
    "--perfFormatter": "--perfFormatter",
}


def main(machine: Machine, name: str, arguments: t.Sequence[str]) -> int:
    version = machine["nvbandwidth"]
    head = f"nvbandwidth Version: {version}\nBuilt from Git version: {version}\n"
    options = _parse(list(arguments))
    if options is None:
        print(head)
        print(f"ERROR: Invalid Arguments \n{' '.join([name, *arguments])} :\n\n\n{USAGE}")
        return 1
    as_json = "--json" in options
    if not as_json:
        print(head)
    if "--help" in options:
        print(USAGE)
        return 0
    if "--list" in options:
        print("Index, Name:\n\tDescription\n=======================")
        print("\n\n".join(f"{index}, {one}:\n\t{one}" for index, one in enumerate(tests.KINDS)) + "\n")
        return 0
    if not machine.cuda_gpus():
        where = "in expression cuInit(0) in int main(int, char**)() : nvbandwidth.cpp:261"
        return _failed(machine, as_json, f"[CUDA_ERROR_NO_DEVICE] no CUDA-capable device is detected {where}\n")
    keys = [tests.key(word) for word in options.get("--testcase", [])]
    prefixes = tuple(options.get("--testcasePrefixes", []))
    keys += [one for one in tests.KINDS if prefixes and one.startswith(prefixes)]
    if prefixes and not keys:
        return _failed(machine, as_json, "Specified list of testcase prefixes did not match any testcases")
    results = [tests.measure(machine, one, "--disableAffinity" in options) for one in keys or tests.KINDS]
    (_print_json if as_json else _print_text)(machine, results, options)
    return 0


def _parse(words: list[str]) -> dict[str, list[str]] | None:
    """Options and their words; nothing when one of them is unknown."""
    found: dict[str, list[str]] = {}
    while words:
        word, equals, value = words.pop(0).partition("=")
        if MANY.get(word, word) in MANY.values():
            listed = found.setdefault(MANY.get(word, word), [value] if equals else [])
            while words and not words[0].startswith("-"):
                listed.append(words.pop(0))
        elif word in WITH_VALUE:
            if not equals and not words:
                return None
            found[WITH_VALUE[word] or word] = [value if equals else words.pop(0)]
        elif FLAGS.get(word, word) in FLAGS.values():
            found[FLAGS.get(word, word)] = []
        else:
            return None
    return found


def _failed(machine: Machine, as_json: bool, message: str) -> int:
    if as_json:
        print(json.dumps({"nvbandwidth": {**_version(machine), "error": message}}, indent=1))
    else:
        print(message, file=sys.stderr)
    return 1


def _version(machine: Machine) -> dict[str, object]:
    return {"git_version": machine["nvbandwidth"], "version": machine["nvbandwidth"]}


def _cuda(machine: Machine) -> int:
    major, dummy, minor = machine["cuda"].partition(".")
    return int(major) * 1000 + int(minor) * 10


def _devices(machine: Machine) -> list[str]:
    names = (
        f"{number}: {machine['gpu']['name']} ({gpu.bus_id[:-2].lower()})"
        for number, gpu in enumerate(machine.cuda_gpus())
    )
    return list(names)


def _print_text(machine: Machine, results: list[tests.Result], options: dict[str, list[str]]) -> None:
    cuda = _cuda(machine)
    print(f"CUDA Runtime Version: {cuda}\nCUDA Driver Version: {cuda}\nDriver Version: {machine['driver']}\n")
    print(machine.host, *(f"Device {device}" for device in _devices(machine)), sep="\n", end="\n\n")
    for result in results:
        if result.status != "Passed":
            print(f"{result.status}: {result.message}")
            continue
        print(f"Running {result.key}.")
        for matrix in result.matrices:
            print(matrix.title)
            _matrix(matrix)
            _summary(matrix, options)
            print()
    print(NOTE)


def _matrix(matrix: tests.Matrix) -> None:
    print("  " + "".join(f"{column:>10}" for column in range(len(matrix.rows[0]))))
    for number, row in enumerate(matrix.rows):
        print(f"{number:>2}" + "".join(f"{'N/A' if cell is None else f'{cell:.2f}':>10}" for cell in row))
    print()


def _summary(matrix: tests.Matrix, options: dict[str, list[str]]) -> None:
    cells = [cell or 0.0 for row in matrix.rows for cell in row]
    total, counted = sum(cells), sum(1 for cell in cells if cell)
    if "--perfFormatter" in options:
        print(f"&&&& PERF {matrix.key} {total:.2f} {'-ns' if matrix.latency else '+GB/s'}")
    else:
        print(f"SUM {matrix.key} {total:.2f}")
    if "--verbose" in options:
        # The tool counts an absent value as zero, so its smallest one is 0.00 wherever there is a diagonal.
        print(
            f"MIN {matrix.key} {min(cells):.2f}\nMAX {matrix.key} {max(cells):.2f}\n"
            f"AVG {matrix.key} {total / counted:.2f}"
        )


def _print_json(machine: Machine, results: list[tests.Result], options: dict[str, list[str]]) -> None:
    cases = []
    for result in results:
        case: dict[str, t.Any] = {"name": result.key, "status": result.status}
        rows = [row for matrix in result.matrices for row in matrix.rows]
        if rows:
            last = [cell or 0.0 for row in result.matrices[-1].rows for cell in row]
            case.update(
                bandwidth_description=result.matrices[-1].title,
                bandwidth_matrix=[["N/A" if cell is None else f"{cell:.6g}" for cell in row] for row in rows],
                sum=sum(last),
            )
            if "--verbose" in options:
                case.update(min=min(last), max=max(last), average=sum(last) / sum(1 for cell in last if cell))
        cases.append(case)
    head = {"CUDA Runtime Version": _cuda(machine), "Driver Version": machine["driver"], **_version(machine)}
    devices = [f"{device}: ({machine.host})" for device in _devices(machine)]
    document = {"nvbandwidth": {**head, "GPU Device list": devices, "testcases": cases}}
    print(json.dumps(document, indent=1, sort_keys=True) + "\n")
