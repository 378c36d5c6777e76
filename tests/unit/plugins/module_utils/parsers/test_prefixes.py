# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What clusters put before the lines of a program: hosts, dates, pods and ranks, and several of them."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import (
    bandwidth_test,
    fio,
    hpl,
    nccl_tests,
    nvbandwidth,
    perftest,
)

FIXTURES = Path(__file__).parents[3] / "fixtures"
OUTPUTS: dict[str, tuple[t.Callable[[str], t.Any], str]] = {
    "nccl_tests 1.0": (nccl_tests.parse, "nccl_tests/authored-1.0-all_reduce.txt"),
    "nccl_tests 2.13": (nccl_tests.parse, "nccl_tests/authored-2.13-all_reduce.txt"),
    "nccl_tests 2.17": (nccl_tests.parse, "nccl_tests/authored-2.17.6-timestamps.txt"),
    "nccl_tests 2.19": (nccl_tests.parse, "nccl_tests/authored-2.19.2-per-iteration.txt"),
    "bandwidth_test": (bandwidth_test.parse, "bandwidth_test/quick-12.8.txt"),
    "nvbandwidth": (nvbandwidth.parse, "nvbandwidth/text-v0.8-verbose-perf.txt"),
    "nvbandwidth json": (nvbandwidth.parse, "nvbandwidth/json-v0.8-one-gpu.json"),
    "hpl": (hpl.parse, "hpl/captured-passed.txt"),
    "hpl nvidia": (hpl.parse, "hpl/nvidia.txt"),
    "perftest": (perftest.parse, "perftest/captured-write-gbits-client.txt"),
    "fio": (fio.parse, "fio/captured-3.33-write.json"),
}
PREFIXES = {
    "pdsh and clush": "gpu-001: ",
    "an address": "10.0.0.4: ",
    "kubectl --prefix": "[pod/nccl-launcher-x7k2p/mpi-launcher] ",
    "kubectl --timestamps": "2026-03-14T09:26:53.123456789Z ",
    "kubectl with both": "[pod/nccl-launcher-x7k2p/mpi] 2026-03-14T09:26:53.123456789Z ",
    "ts": "Mar 14 09:26:53 ",
    "ts with a format": "[2026-03-14 09:26:53] ",
    "journalctl": "Mar  4 09:26:53 gpu-001 all_reduce_perf[4711]: ",
    "srun --label": "0: ",
    "srun --label, aligned": " 3: ",
    "mpirun --tag-output": "[1,0]<stdout>:",
    "pods and ranks": "[pod/nccl-launcher-x7k2p/mpi] [1,0]<stdout>:",
    "dates and ranks": "2026-03-14T09:26:53Z 0: ",
}


def said(name: str) -> str:
    return (FIXTURES / OUTPUTS[name][1]).read_text()


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize("name", OUTPUTS)
def test_a_prefix_changes_nothing(name: str, prefix: str) -> None:
    parse = OUTPUTS[name][0]
    plain = parse(said(name))
    assert plain.ok
    assert parse("".join(f"{prefix}{line}\n" for line in said(name).splitlines())) == plain


# Of perftest the same addresses twice are the two sides of one test.
@pytest.mark.parametrize("name", sorted(set(OUTPUTS) - {"perftest"}))
def test_the_output_of_one_host_after_that_of_another_is_two_runs(name: str) -> None:
    parse, text = OUTPUTS[name][0], said(name).splitlines()
    log = parse("".join(f"{host}: {line}\n" for host in ("gpu-001", "gpu-002") for line in text))
    assert (log.ok, log.runs) == (True, parse(said(name)).runs * 2)


@pytest.mark.parametrize("name", OUTPUTS)
def test_lines_of_several_hosts_that_alternate_are_no_result(name: str) -> None:
    parse, text = OUTPUTS[name][0], said(name).splitlines()
    log = parse("".join(f"{host}: {line}\n" for line in text for host in ("gpu-001", "gpu-002")))
    assert not log.ok
    assert log.cause is not None


# As `srun -l`, `mpirun --tag-output` and Hydra's -prepend-rank mark the ranks.
RANKS = {
    "srun -l": ("0: ", "1: "),
    "srun -l, aligned": (" 3: ", "12: "),
    "Open MPI": ("[1,0]<stdout>:", "[1,1]<stdout>:"),
    "Hydra": ("[0] ", "[1] "),
    "dates before": ("2026-03-14T09:26:53Z 0: ", "2026-03-14T09:26:53Z 1: "),
}
# Of these a node may have a copy of its own; but none of them is one measurement where they ran beside each other.
WITHOUT_MPI = sorted(set(OUTPUTS) - {"perftest", "fio"})


@pytest.mark.parametrize("tags", RANKS.values(), ids=RANKS)
@pytest.mark.parametrize("name", WITHOUT_MPI)
def test_copies_that_do_not_know_of_each_other_are_no_result(name: str, tags: tuple[str, str]) -> None:
    """Each task of a step started the program for itself: their rows were read as one run's."""
    parse, text = OUTPUTS[name][0], said(name).splitlines()
    log = parse("".join(f"{tag}{line}\n" for line in text for tag in tags))
    assert not log.ok
    assert log.cause is not None and log.cause.kind == "config", log.cause
    assert "copies of the program" in log.cause.text or "tables are mixed" in log.cause.text


@pytest.mark.parametrize("name", WITHOUT_MPI)
def test_copies_whose_outputs_overlap_for_one_line_are_no_result(name: str) -> None:
    parse, text = OUTPUTS[name][0], said(name).splitlines()
    first, second = ([f"{rank}: {line}\n" for line in text] for rank in "01")
    assert not parse("".join([*first[:-1], *second[:-1], first[-1], second[-1]])).ok


@pytest.mark.parametrize("name", WITHOUT_MPI)
def test_other_ranks_may_say_something_between_the_lines_of_the_first(name: str) -> None:
    parse, text = OUTPUTS[name][0], said(name).splitlines()
    notes = "1: gpu-002:412:431 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] via P2P\n"
    log = parse("".join(f"0: {line}\n{notes}" for line in text))
    assert (log.ok, log.cause, len(log.runs)) == (True, None, len(parse(said(name)).runs))


@pytest.mark.parametrize("word", ["fio", "srun", "Device 0", "0x1", "error"])
def test_a_word_before_a_colon_is_no_host(word: str) -> None:
    log = nccl_tests.parse(
        f"{word}: began\n{said('nccl_tests 2.13')}{word}: Test CUDA failure x.cu:1 'out of memory'\n"
    )
    assert log.cause is not None
    assert log.cause.text == f"{word}: Test CUDA failure x.cu:1 'out of memory'"
