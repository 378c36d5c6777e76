# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs, memory, swap, the machine type, and processes that a job left."""

from __future__ import annotations

import errno
import json
import pwd
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import checks_node, node_access
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.node_access import JobProcess
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.agent.node_world import World

SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.file("sys/devices/system/cpu/online", "0-95\n")
    made.file("sys/devices/system/cpu/present", "0-95\n")
    made.file("proc/meminfo", "MemTotal: 924000000 kB\nHardwareCorrupted:     0 kB\n")
    made.file("proc/swaps", SWAPS)
    return made


def test_a_whole_machine_passes(world: World) -> None:
    for name in ("profile", "cpus_online", "memory_errors", "swap"):
        assert world.one(name)["verdict"] == "pass", name


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"known": False}, "there is no profile for Standard_ND96asr_v4: nothing is expected"),
        ({"expect": []}, "the profile of Standard_ND96asr_v4 has no limits: nothing is expected"),
    ],
)
def test_a_machine_type_of_which_nothing_is_expected_proves_nothing(
    world: World, change: dict[str, t.Any], reason: str
) -> None:
    world.profile.update({"sku": "Standard_ND96asr_v4", **change})
    found = world.one("profile")
    assert found["verdict"] == "error"
    assert found["reason"].startswith(reason)


def test_a_cpu_that_was_taken_offline_is_hardware(world: World) -> None:
    world.file("sys/devices/system/cpu/online", "0-6,8-95\n")
    found = world.one("cpus_online")
    assert (found["verdict"], found["class"]) == ("fail", "hardware")
    assert "offline: 1 cpus, expected == 0" in found["reason"]
    assert "online: 95 cpus, expected == 96" in found["reason"]


@pytest.mark.parametrize(("vcpus", "verdict", "blame"), [(48, "pass", None), (96, "fail", "config")])
def test_threads_that_are_switched_off_are_no_broken_hardware(
    world: World, vcpus: int, verdict: str, blame: str | None
) -> None:
    world.file("sys/devices/system/cpu/smt/control", "off\n")
    world.file("sys/devices/system/cpu/online", "0-47\n")
    world.profile["vcpus"] = vcpus
    found = world.one("cpus_online")
    assert (found["verdict"], found["class"]) == (verdict, blame)


@pytest.mark.parametrize("text", ["", "nonsense\n", "0-\n"])
def test_cpus_that_cannot_be_counted_are_an_error(world: World, text: str) -> None:
    world.file("sys/devices/system/cpu/online", text)
    assert world.one("cpus_online")["verdict"] == "error"


@pytest.mark.parametrize(("ue", "ce", "verdict"), [(0, 0, "pass"), (0, 900, "pass"), (1, 0, "fail")])
def test_memory_controllers_are_asked(world: World, ue: int, ce: int, verdict: str) -> None:
    for number in range(2):
        world.file(f"sys/devices/system/edac/mc/mc{number}/ue_count", f"{ue if number else 0}\n")
        world.file(f"sys/devices/system/edac/mc/mc{number}/ce_count", f"{ce}\n")
    found = world.one("memory_errors")
    assert found["verdict"] == verdict
    assert found["scope"] == ({"memory_controller": ["mc1"]} if ue else {})


def test_a_controller_that_does_not_tell_is_an_error(world: World) -> None:
    world.file("sys/devices/system/edac/mc/mc0/ue_count", "many\n")
    assert world.one("memory_errors")["verdict"] == "error"


def test_memory_that_the_kernel_gave_up_fails(world: World) -> None:
    world.file("proc/meminfo", "MemTotal: 1 kB\nHardwareCorrupted:     8 kB\n")
    found = world.one("memory_errors")
    assert (found["verdict"], found["class"]) == ("fail", "hardware")
    assert "poisoned: 8192 bytes" in found["reason"]


def test_a_kernel_that_counts_nothing_is_skipped(world: World) -> None:
    world.file("proc/meminfo", "MemTotal: 1 kB\n")
    assert world.one("memory_errors")["verdict"] == "skipped"


def test_swap_is_a_fault_of_the_configuration_where_the_machine_type_has_none(world: World) -> None:
    world.file("proc/swaps", f"{SWAPS}/dev/sdb2                               partition\t1048572\t0\t-2\n")
    found = world.one("swap")
    assert (found["verdict"], found["class"], found["samples"][0]["device"]) == ("fail", "config", "/dev/sdb2")
    del world.profile["vm_size"]
    assert world.one("swap")["verdict"] == "unjudged"


@pytest.mark.parametrize("text", ["", "x\n", f"{SWAPS}/dev/sdb2 partition\n"])
def test_swap_that_cannot_be_read_is_an_error(world: World, text: str) -> None:
    world.file("proc/swaps", text)
    assert world.one("swap")["verdict"] == "error"


def process(pid: int, uid: int, job: str = "", login: int | None = None, **more: str) -> JobProcess:
    return JobProcess(
        pid, uid, login, job, more.get("state", "S"), more.get("group", ""), more.get("command", "python3")
    )


STEP = process(10, 0, command="slurmstepd: [7.batch]")


def test_what_a_job_that_runs_started_is_its_own() -> None:
    own = [STEP, process(11, 1001, "7"), process(12, 1001, login=1001)]
    assert checks_node.left(own) == []


def test_what_a_job_that_ended_left_is_found_by_its_cgroup() -> None:
    rest = process(11, 1001, "6")
    assert checks_node.left([STEP, process(12, 1001, "7"), rest]) == [rest]


def test_in_an_epilog_the_own_job_has_ended() -> None:
    rest = process(11, 1001, "7")
    assert checks_node.left([STEP, rest], {"7"}) == [rest]


def test_a_shell_of_a_user_without_a_job_is_found_by_its_login() -> None:
    shell = process(11, 1002, login=1002)
    assert checks_node.left([STEP, process(12, 1001, "7"), shell]) == [shell]
    assert checks_node.left([STEP, process(12, 1001, "7"), shell], logins=False) == []


@pytest.mark.parametrize(
    "other",
    [
        process(11, 0, "6"),
        process(11, 65534, "6"),
        process(11, 64030, "6"),
        process(11, 1001, "6", state="Z"),
        process(11, 1001),
        process(11, 1001, login=1001, group="0::/user.slice/user-1001.slice/user@1001.service/init.scope"),
    ],
)
def test_daemons_zombies_and_session_managers_are_nobodys_fault(other: JobProcess) -> None:
    assert checks_node.left([other]) == []


def test_accounts_of_services_are_left_alone() -> None:
    assert checks_node.left([process(11, 1064, "6")], (), {1064}) == []
    assert len(checks_node.left([process(11, 1064, "6"), process(12, 1200042, "6")])) == 2


def write(world: World, pid: int, uid: int, command: str, cgroup: str = "0::/\n", login: int = 4294967295) -> None:
    place = f"proc/{pid}"
    world.file(f"{place}/status", f"Name:\tpython3\nState:\tD (disk sleep)\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    world.file(f"{place}/cmdline", command.replace(" ", "\0"))
    world.file(f"{place}/cgroup", cgroup)
    world.file(f"{place}/loginuid", str(login))


@pytest.mark.parametrize(
    "cgroup",
    [
        "4:memory:/slurm/uid_1234/job_6/step_batch\n0::/\n",
        "0::/system.slice/slurmstepd.scope/job_6/step_0/user/task_0\n",
    ],
)
def test_both_kinds_of_cgroups_are_read_from_the_process_table(world: World, cgroup: str) -> None:
    write(world, 10, 0, "slurmstepd: [7.batch]")
    write(world, 99, 1234, "/usr/bin/python3 train.py", cgroup)
    found = world.one("leftover_processes", "epilog")
    assert (found["verdict"], found["class"]) == ("warn", "software")
    assert "1 of them in uninterruptible sleep" in found["reason"]
    assert {**found["samples"][0], "user": "?"} == {
        "pid": 99,
        "user": "?",
        "job": "6",
        "state": "D",
        "program": "python3",
    }


def test_command_lines_of_users_are_not_even_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold passwords now and then, and reading that of a process that hangs may hang as well."""
    real, seen = node_access.text, []
    monkeypatch.setattr(node_access, "text", lambda path: (seen.append(str(path)), real(path))[1])
    write(world, 10, 0, "slurmstepd: [7.batch]")
    write(world, 99, 1234, "python3 train.py --token hunter2", "0::/slurm/job_6/step_0\n")
    record = world.one("leftover_processes", "epilog")
    assert record["samples"][0]["program"] == "python3"
    assert "hunter2" not in json.dumps(record)
    assert [path.rpartition("proc/")[2] for path in seen if path.endswith("cmdline")] == ["10/cmdline"]


def test_an_empty_process_table_is_an_error(world: World) -> None:
    assert world.one("leftover_processes")["verdict"] == "error"


def test_a_kernel_without_audit_knows_no_login(world: World) -> None:
    write(world, 10, 1234, "bash", login=4294967295)
    (found,) = node_access.processes(world.folder / "proc")
    assert found.login is None


def test_the_account_of_the_mailbox_is_a_service(world: World) -> None:
    user = pwd.getpwuid(1).pw_name
    world.settings["mailbox_user"] = user
    assert checks_node._service(user) == {1}
    assert checks_node._service("no-such-user") == set()


IMAGE = {"schema": 1, "collection": "0.1.0", "slurm": "22.05.8", "driver": "", "date": "2026-11-23T08:00:00Z"}


@pytest.mark.parametrize(
    ("cluster", "verdict", "reason"),
    [
        ({}, "pass", ""),
        ({"collection": "0.1.0", "slurm": "22.05", "driver": "570"}, "pass", ""),
        (
            {"collection": "0.2.0", "slurm": "24.11.5"},
            "warn",
            "the image of 2026-11-23T08:00:00Z is older than the cluster: hpcai.gpu_cluster 0.1.0, the cluster has"
            " 0.2.0; Slurm 22.05.8, the cluster has 24.11.5",
        ),
    ],
)
def test_an_image_that_is_older_than_the_cluster_is_told_and_drains_nothing(
    world: World, cluster: dict[str, str], verdict: str, reason: str
) -> None:
    world.settings["checks"] = {"image": {"path": str(world.file("image.json", json.dumps(IMAGE))), **cluster}}
    found = world.one("image")
    assert (found["verdict"], found["reason"] or "") == (verdict, reason)
    assert found["context"].get("action") in (None, "monitor")


def test_a_user_s_job_that_may_not_look_into_etc_hpcai_is_no_error(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No node would be cleared: a certification runs as an ordinary user."""

    def forbidden(path: str) -> t.NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.image.open_regular", forbidden)
    world.settings["checks"] = {"image": {"path": str(tmp_path / "image.json")}}
    found = world.one("image")
    assert found["verdict"] == "skipped" and "Permission denied" in found["reason"]


def test_a_node_of_no_image_is_passed_over_and_one_of_a_damaged_image_is_not(world: World, tmp_path: Path) -> None:
    world.settings["checks"] = {"image": {"path": str(tmp_path / "image.json")}}
    assert world.one("image")["verdict"] == "skipped"
    world.file("image.json", "{")
    assert world.one("image")["verdict"] == "error"
