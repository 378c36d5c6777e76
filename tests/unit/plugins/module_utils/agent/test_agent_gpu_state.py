# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory errors, persistence, clocks, idle GPUs and the counters of NVLink."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import checks_gpu_state, node_access
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nvidia_smi_nvlink
from ansible_collections.hpcai.gpu_cluster.tests.unit.fixtures.nvidia_smi import machines
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.agent.node_world import World, smi

GONE = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    machines.ndv4_sysfs(tmp_path / "sys")
    made.file("proc/1/status", "Name:\tsystemd\nState:\tS (sleeping)\nUid:\t0\t0\t0\t0\n")
    return made


@pytest.mark.parametrize("card", [machines.A100_R470, machines.A100_R535, machines.H100_R550, machines.GB200_R580])
def test_sound_gpus_of_every_driver_pass(world: World, card: machines.Card) -> None:
    smi(world, card)
    assert world.one("gpu_memory_errors")["verdict"] == "pass"
    assert world.one("gpu_persistence")["verdict"] == "pass"


def test_one_uncorrected_error_of_sram_fails_where_the_sum_only_warns(world: World) -> None:
    smi(world, machines.H100_R550, {5: {"aggregate": "<sram_uncorrectable_secded>1</sram_uncorrectable_secded>"}})
    found = world.one("gpu_memory_errors")
    assert (found["verdict"], found["class"], found["scope"]) == ("fail", "hardware", {"gpu": [5]})
    assert "sram_uncorrected_aggregate (gpu=5): 1 errors, expected == 0" in found["reason"]
    assert found["context"]["action"] == "reset"


@pytest.mark.parametrize(("count", "verdict"), [(9999, "pass"), (10000, "pass"), (10001, "fail")])
def test_corrected_errors_of_sram_are_compared_as_numbers(world: World, count: int, verdict: str) -> None:
    smi(world, machines.A100_R535, {0: {"sram_correctable": str(count)}})
    assert world.one("gpu_memory_errors")["verdict"] == verdict


def test_old_gpus_show_what_they_have(world: World) -> None:
    smi(world, machines.V100_R440, {3: {"pending_retirement": "Yes"}})
    found = world.one("gpu_memory_errors")
    assert (found["verdict"], found["scope"]) == ("warn", {"gpu": [3]})


def test_persistence_that_is_off_is_configuration(world: World) -> None:
    smi(world, changes={7: {"persistence_mode": "Disabled"}})
    found = world.one("gpu_persistence")
    assert (found["verdict"], found["class"], found["scope"]) == ("fail", "config", {"gpu": [7]})


def test_a_gpu_that_may_not_clock_as_high_as_its_kind_warns(world: World) -> None:
    world.profile["gpu"]["max_clocks"] = {"graphics": 1980, "memory": 2619}
    smi(world, machines.H100_R550)
    assert world.one("gpu_clock_limits")["verdict"] == "pass"
    smi(world, machines.A100_R535)
    found = world.one("gpu_clock_limits")
    assert (found["verdict"], found["class"]) == ("warn", "config")
    assert "graphics_max (gpu=0): 1410 MHz, expected >= 1980" in found["reason"]


@pytest.mark.parametrize(
    "check", ["gpu_memory_errors", "gpu_persistence", "gpu_clock_limits", "gpu_clock_lock", "gpu_idle"]
)
@pytest.mark.parametrize("answer", ["", GONE, "<nvidia_smi_log><gpu", "No devices were found\n"])
def test_a_tool_that_says_nothing_is_an_error_and_no_pass(world: World, check: str, answer: str) -> None:
    smi(world, answer=answer)
    found = world.one(check)
    assert (found["verdict"], found["class"]) == ("error", "infra")


def test_memory_that_nobody_uses_warns_once_and_then_fails(world: World) -> None:
    smi(world, changes={4: {"used": "16 MiB"}})
    assert world.one("gpu_idle")["verdict"] == "warn"
    found = world.one("gpu_idle")
    assert (found["verdict"], found["class"], found["scope"]) == ("fail", "software", {"gpu": [4]})
    smi(world)
    assert world.one("gpu_idle")["verdict"] == "pass"
    smi(world, changes={4: {"used": "15 MiB"}})
    assert world.one("gpu_idle")["verdict"] == "pass"


def test_files_that_linux_caches_in_the_memory_of_a_gpu_are_no_finding(world: World) -> None:
    smi(world, changes={4: {"used": "30000 MiB"}})
    assert world.one("gpu_idle")["verdict"] == "warn"
    world.profile["gpu"] = {**world.profile["gpu"], "model": "GB200"}
    assert world.one("gpu_idle")["verdict"] == "pass"


def test_a_process_on_an_idle_gpu_is_named(world: World) -> None:
    smi(world, changes={1: {"processes": machines.process_xml(4242)}})
    found = world.one("gpu_idle")
    assert found["verdict"] == "warn"
    assert found["evidence"] == "4242 python3"


def test_a_job_may_use_its_gpus_and_its_own_epilog_does_not_count_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi(world, changes={4: {"used": "30000 MiB"}})
    world.file("proc/77/status", "Name:\tslurmstepd\nState:\tS\nUid:\t0\t0\t0\t0\n")
    world.file("proc/77/cmdline", "slurmstepd: [123.batch]\0")
    assert world.one("gpu_idle")["verdict"] == "skipped"
    monkeypatch.setenv("SLURM_JOB_ID", "123")
    assert world.one("gpu_idle", "epilog")["verdict"] == "warn"
    world.file("proc/77/cmdline", "/usr/sbin/slurmstepd infinity\0")
    monkeypatch.delenv("SLURM_JOB_ID")
    assert world.one("gpu_idle")["verdict"] != "skipped"


HOPPER = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-00000000-0000-4000-8000-000000000000)
\t Link 0: Replay Errors: {replay}
\t Link 0: Recovery Errors: 0
\t Link 0: CRC Errors: 0

\t Link 1: Replay Errors: 0
\t Link 1: Recovery Errors: 0
\t Link 1: CRC Errors: 0
"""
BLACKWELL = """GPU 0: NVIDIA B300 SXM6 AC (UUID: GPU-00000000-0000-4000-8000-000000000000)
\t Link 0: Tx packets: 12345678
\t Link 0: Malformed packet Errors: 0
\t Link 0: Buffer overrun Errors: 0
\t Link 0: Rx Errors: 0
\t Link 0: Rx remote Errors: 0
\t Link 0: Rx General Errors: 0
\t Link 0: Local link integrity Errors: 0
\t Link 0: Tx discards: 0
\t Link 0: Link recovery successful events: 3
\t Link 0: Link recovery failed events: {failed}
\t Link 0: Total link recovery events: 3
\t Link 0: Effective Errors: {effective}
\t Link 0: Effective BER: {ber}
\t Link 0: Symbol Errors: 0
\t Link 0: Symbol BER: 15e-255
\t Link 0: FEC Errors - 0: 36140749276
\t Link 0: Raw BER Lane 0: 2061
\t Link 0: Raw Errors Lane 0: 82
"""


def links(world: World, text: str) -> dict[str, t.Any]:
    """Judge counters as the check does, kept from run to run."""
    context = world.context()
    found = checks_gpu_state.judged(context, nvidia_smi_nvlink.parse(text))
    record = checks_gpu_state.report(context, checks_gpu_state.NVLINK_CHECK, found)
    world.state["kept"].update(context.keeping)
    return t.cast("dict[str, t.Any]", record)


def test_links_without_errors_pass(world: World) -> None:
    assert links(world, HOPPER.format(replay=0))["verdict"] == "pass"
    assert links(world, BLACKWELL.format(failed=0, effective=0, ber="15e-255"))["verdict"] == "pass"


def test_what_blackwell_corrects_in_billions_is_no_error() -> None:
    (gpu,) = nvidia_smi_nvlink.parse(BLACKWELL.format(failed=0, effective=0, ber="15e-255"))
    assert (gpu.total("errors"), gpu.total("recovery_failed"), len(gpu.links)) == (0, 0, 1)


def test_errors_warn_and_their_growth_in_an_hour_is_told(world: World) -> None:
    assert links(world, HOPPER.format(replay=2))["verdict"] == "warn"
    world.now += 600
    found = links(world, HOPPER.format(replay=9))
    (rate,) = [one for one in found["metrics"] if one["name"] == "errors_per_hour"]
    assert (rate["value"], found["scope"]) == (7, {"gpu": [0]})


@pytest.mark.parametrize(
    ("ber", "verdict"), [("15e-9", "pass"), ("1e-6", "pass"), ("15e-6", "warn"), ("15e-3", "warn")]
)
def test_bit_error_rates_are_compared_as_numbers(world: World, ber: str, verdict: str) -> None:
    assert links(world, BLACKWELL.format(failed=0, effective=0, ber=ber))["verdict"] == verdict


def test_a_link_that_did_not_recover_fails(world: World) -> None:
    found = links(world, BLACKWELL.format(failed=1, effective=0, ber="15e-255"))
    assert (found["verdict"], found["class"], found["context"]["action"]) == ("fail", "hardware", "reset")


@pytest.mark.parametrize(
    "text", ["", "GPU 0: x\n", "Link 0: CRC Errors: 5\n", "GPU 0: x\n\t Link 0: Replay Errors: N/A\n"]
)
def test_nothing_readable_is_no_count(text: str) -> None:
    assert all(gpu.total("errors") is None for gpu in nvidia_smi_nvlink.parse(text))


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (Outcome(None, "", "nvidia-smi did not end within 6 s", 6.0), "error"),
        (Outcome(0, "", "", 0.1), "error"),
        (Outcome(9, GONE, "", 0.1), "error"),
        (Outcome(0, HOPPER.format(replay=0), "", 0.1), "pass"),
    ],
)
def test_the_tool_may_fail(world: World, monkeypatch: pytest.MonkeyPatch, outcome: Outcome, verdict: str) -> None:
    monkeypatch.setattr(checks_gpu_state._launch, "find", lambda *names, **options: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(checks_gpu_state, "run", lambda *words: outcome)
    assert world.one("gpu_nvlink_errors")["verdict"] == verdict


@pytest.mark.parametrize("said", ["NVML: Unable to retrieve NVLink errors as all links are inActive\n", "no MIG\n"])
@pytest.mark.parametrize("mig, verdict", [("Enabled", "skipped"), ("Disabled", "error")])
def test_counters_of_nvlink_in_mig_mode_are_skipped_with_the_sentence(
    world: World, monkeypatch: pytest.MonkeyPatch, said: str, mig: str, verdict: str
) -> None:
    smi(world, machines.A100_R470, {index: {"current_mig": mig} for index in range(8)})
    monkeypatch.setattr(checks_gpu_state._launch, "find", lambda *names, **options: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(checks_gpu_state, "run", lambda *words: Outcome(0, f"GPU 0: x (UUID: y)\n{said}", "", 0.1))
    found = world.one("gpu_nvlink_errors")
    assert found["verdict"] == verdict and said.strip() in found["reason"]


def test_what_its_profile_expects_and_nobody_measures_is_an_error(world: World) -> None:
    smi(world, machines.A100_R470)
    told = {"op": "==", "value": 0, "unit": "errors", "source": "test"}
    limit = {"check": "gpu_memory_errors", "metric": "sram_parity", **told}
    world.profile["expect"] = [*world.profile["expect"], limit, {**limit, "check": "gpu_ecc", "metric": "else"}]
    found = world.one("gpu_memory_errors")
    assert (found["verdict"], found["reason"]) == ("error", "sram_parity: not measured, expected == 0")


def test_no_nvidia_smi_is_started_beside_one_that_hangs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check every five minutes would leave hundreds of them behind in a day."""
    monkeypatch.setattr(checks_gpu_state._launch, "find", lambda *names, **options: "/usr/bin/nvidia-smi")
    for pid, parent in ((70, 1), (71, 70)):
        world.file(f"proc/{pid}/stat", f"{pid} (nvidia-smi) D {parent} 70 70 0 -1 4194560\n")
        world.file(f"proc/{pid}/status", "Name:\tnvidia-smi\nState:\tD (disk sleep)\nUid:\t0\t0\t0\t0\n")
    (world.folder / "proc/70/exe").symlink_to("/usr/bin/nvidia-smi (deleted)")
    for name in ("gpu", "gpu_memory_errors", "gpu_idle", "gpu_nvlink_errors"):
        found = world.run(name)
        assert {(one["verdict"], one["class"]) for one in found} == {("error", "infra")}, name
        assert all("nvidia-smi (70) hangs in the kernel" in one["reason"] for one in found), name


@pytest.mark.parametrize(
    ("uids", "file"),
    [
        ("1000\t1000\t1000\t1000", "/home/user/nvidia-smi"),
        ("1000\t1000\t1000\t1000", "/usr/bin/nvidia-smi"),
        ("1000\t0\t0\t0", "/usr/sbin/mount.nfs"),
        ("0\t0\t0\t0", "/usr/bin/sudo"),
        ("1000\t0\t0\t0", ""),
    ],
)
def test_a_users_process_that_calls_itself_nvidia_smi_and_hangs_blinds_no_check(
    world: World, uids: str, file: str
) -> None:
    """A parent in vfork, a file on a server that is gone, a link of that name to a program that is root's: all hang."""
    world.file("proc/70/stat", "70 (nvidia-smi) D 1 70 70 0 -1 4194560\n")
    world.file("proc/70/status", f"Name:\tnvidia-smi\nState:\tD (disk sleep)\nUid:\t{uids}\n")
    if file:
        (world.folder / "proc/70/exe").symlink_to(file)
    assert node_access.hung(world.folder / "proc", "nvidia-smi") == []
    for name in ("gpu", "gpu_memory_errors", "gpu_idle"):
        assert not any("hangs in the kernel" in one["reason"] for one in world.run(name)), name


def test_one_that_hangs_while_it_ends_has_no_file_and_counts(world: World) -> None:
    world.file("proc/70/stat", "70 (nvidia-smi) D 1 70 70 0 -1 4194560\n")
    world.file("proc/70/status", "Name:\tnvidia-smi\nUid:\t0\t0\t0\t0\n")
    assert node_access.hung(world.folder / "proc", "nvidia-smi") == [70]


def test_gpus_are_counted_on_the_bus_against_the_machine_type(world: World) -> None:
    """What else NVIDIA makes (an NVSwitch is a bridge, class 0x0680) is no GPU."""
    world.file("sys/bus/pci/devices/0007:00:00.0/class", "0x068000\n")
    world.file("sys/bus/pci/devices/0007:00:00.0/vendor", "0x10de\n")
    assert world.one("gpu_devices", "prolog")["verdict"] == "pass"
    bus = world.folder / "sys/bus/pci/devices"
    gone = next(path.parent for path in bus.glob("*/class") if path.read_text().startswith("0x0302"))
    gone.rename(world.folder / "gone")
    found = world.one("gpu_devices", "prolog")
    assert (found["verdict"], found["class"]) == ("fail", "hardware")
    assert "7 GPUs, expected >= 8" in found["reason"]
