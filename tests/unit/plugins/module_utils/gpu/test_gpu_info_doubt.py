# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_info in doubt: outputs that break off, GPUs that lack what is checked, machines whose GPUs share a PCI domain."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import info
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.inventory import (
    Expected,
    GpuCheckOptions,
    nodes_of,
    read,
)
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi import machines

# A board of eight on bare metal: one PCI domain, the GPUs of socket 0 first.
BARE = [f"00000000:{bus:02X}:00.0" for bus in (0x0F, 0x15, 0x50, 0x53, 0x8C, 0x91, 0xD6, 0xDA)]
NODES = (0, 0, 0, 0, 1, 1, 1, 1)
PLACES = [Expected(0, node) for node in NODES]
UNCORRECTED = {"check": "gpu_ecc", "metric": "volatile_uncorrected", "op": "==", "value": 0, "unit": "errors"}


def judged(text: str, root: Path, options: GpuCheckOptions, ids: t.Sequence[str] = BARE) -> dict[str, t.Any]:
    """Return the records for a machine that prints a document; its bus has the GPUs of ``ids``."""
    places = [(f"{bus_id[4:].lower()}", node) for bus_id, node in zip(ids, NODES)]
    sysfs = machines.sysfs(root, ["0-47", "48-95"], places, [], True)

    def run(argv: t.Sequence[str], *dummy: t.Any) -> Outcome:
        return Outcome(0, text if argv[1] == "-q" else "", "", 0.1)

    reading = read(None, 5, None, run, lambda *words, **more: "/usr/bin/nvidia-smi")
    seen = info.see(reading, options, sysfs, None, "/nowhere")
    return {record["check"]: record for record in info.result(seen, options, list(info.CHECKS), 1.0, 2.0)["checks"]}


def sound(changes: t.Any = None, lost: t.Sequence[int] = (), card: machines.Card = machines.H100_R550) -> str:
    return machines.document(card, BARE, changes, lost=lost)


def test_an_output_that_breaks_off_takes_no_gpu_away(tmp_path: Path) -> None:
    """The five that were not printed are on the bus; nothing says that the driver hides them."""
    text = sound()
    cut = text[: [place for place in range(len(text)) if text.startswith("</gpu>", place)][2] + len("</gpu>")]
    record = judged(cut, tmp_path, GpuCheckOptions("n1", 8))["gpu_count"]
    assert (record["verdict"], record["class"], record["scope"]) == ("error", "infra", {})
    assert "its output ends in the middle" in record["reason"]


@pytest.mark.parametrize(
    ("card", "change", "words"),
    [
        (machines.GB200_R580, {"gpu_recovery_action": "Drain and Reset"}, "asks for recovery: Drain and Reset"),
        (machines.H100_R550, {"reset_required": "Yes"}, "requires a reset"),
    ],
)
def test_a_gpu_that_asks_for_a_reset_is_not_sound(
    tmp_path: Path, card: machines.Card, change: dict[str, str], words: str
) -> None:
    record = judged(sound({2: change}, card=card), tmp_path, GpuCheckOptions("n1", 8))["gpu_count"]
    assert (record["verdict"], record["class"], record["scope"]) == ("fail", "hardware", {"gpu": [2]})
    assert record["reason"] == f"GPU 2 answers and {words}"
    assert judged(sound(card=card), tmp_path / "sound", GpuCheckOptions("n1", 8))["gpu_count"]["verdict"] == "pass"


def test_a_gpu_in_parts_is_not_the_gpu_that_is_expected(tmp_path: Path) -> None:
    record = judged(sound({1: {"current_mig": "Enabled"}}), tmp_path, GpuCheckOptions("n1", 8, "H100"))["gpu_model"]
    assert (record["verdict"], record["class"], record["scope"]) == ("warn", "config", {"gpu": [1]})
    assert record["reason"].startswith("MIG mode is on on GPU 1, ")


def test_what_no_gpu_of_the_machine_has_is_skipped_unless_expected(tmp_path: Path) -> None:
    """A workstation GPU: ECC off, no remapped rows, no retired pages. Nobody expects any of it."""
    off = {"current_ecc": "Disabled", "remapped_rows": "N/A", "ecc_errors": ""}
    text = sound(dict.fromkeys(range(8), off))
    found = judged(text, tmp_path, GpuCheckOptions("n1", 8))
    assert [found[name]["verdict"] for name in ("gpu_ecc", "gpu_remap")] == ["skipped", "skipped"]
    assert found["gpu_ecc"]["reason"] == "nvidia-smi shows no such value of these GPUs"
    record = judged(text, tmp_path / "asked", GpuCheckOptions("n1", 8, expect=[{**UNCORRECTED, "source": "test"}]))[
        "gpu_ecc"
    ]
    assert (record["verdict"], record["class"]) == ("fail", "config")
    assert "nvidia-smi -e 1 and a reset" in record["reason"]


def test_gpus_of_one_domain_are_compared_along_the_bus(tmp_path: Path) -> None:
    record = judged(sound(), tmp_path, GpuCheckOptions("n1", 8, places=PLACES))["gpu_topology"]
    assert record["verdict"] == "pass", record["reason"]
    other = [*PLACES[4:], *PLACES[:4]]
    record = judged(sound(), tmp_path / "other", GpuCheckOptions("n1", 8, places=other))["gpu_topology"]
    assert (record["verdict"], record["scope"]) == ("fail", {"gpu": list(range(8))})


def test_with_one_missing_in_a_shared_domain_the_others_are_not_blamed(tmp_path: Path) -> None:
    found = judged(sound(lost=[3]), tmp_path, GpuCheckOptions("n1", 8, places=PLACES))
    assert (found["gpu_topology"]["verdict"], found["gpu_topology"]["scope"]) == ("error", {})
    assert "cannot be told" in found["gpu_topology"]["reason"]
    assert found["gpu_count"]["scope"] == {"gpu": [3]} and "NUMA node 0" in found["gpu_count"]["reason"]


@pytest.mark.parametrize(
    ("profile", "there", "want"),
    [
        ([(1, 7), (2, 8)], [(1, 0), (2, 0)], [7, 8]),
        ([(1, 7), (2, 8)], [(2, 0), (3, 0)], [8, "none"]),
        ([(1, 7)], [(1, 0), (1, 5)], [7, 7]),
        ([(0, 0), (0, 1)], [(0, 1), (0, 9)], [0, 1]),
        ([(0, 0), (0, 1)], [(0, 9)], [None]),
        ([(0, 1), (0, 1)], [(0, 9)], [1]),
    ],
)
def test_the_numa_node_that_a_profile_expects(profile: t.Any, there: t.Any, want: t.Any) -> None:
    addresses = [(domain, bus, 0, 0) for domain, bus in there]
    nodes = nodes_of([Expected(*row) for row in profile], addresses)
    assert [nodes.get(where, "none") for where in addresses] == want
