# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._systemd import (
    Service,
    ServicePlan,
    parse_show,
    plan,
    running,
    settled,
    started,
    unit_files,
    units,
)

START = 1763710000.25
SHOWN = """LoadState=loaded
ActiveState=active
UnitFileState=enabled
NeedDaemonReload=no
FragmentPath=/lib/systemd/system/slurmd.service
DropInPaths=/etc/systemd/system/slurmd.service.d/a.conf /etc/systemd/system/slurmd.service.d/b.conf
ExecMainStartTimestamp=Fri 2025-11-21 07:26:40.250000 UTC
"""


def unit(**changes: str) -> dict[str, str]:
    return {**parse_show(SHOWN), **changes}


def test_unit_is_read() -> None:
    assert started(unit()) == START
    assert [path.rsplit("/", 1)[1] for path in unit_files(unit())] == ["slurmd.service", "a.conf", "b.conf"]


def test_what_a_generator_drew_is_no_reason_to_restart() -> None:
    """It is new after every daemon-reload; nfs-server has such a drop-in."""
    shown = {
        "FragmentPath": "/run/systemd/generator/x.service",
        "DropInPaths": "/run/systemd/generator.late/y.conf /etc/z.conf",
    }
    assert unit_files(shown) == ["/etc/z.conf"]


@pytest.mark.parametrize("stamp", ["", "n/a"])
def test_a_unit_without_process_has_no_start(stamp: str) -> None:
    assert started({"ExecMainStartTimestamp": stamp}) is None


@pytest.mark.parametrize(
    ("changes", "restart_on", "reload_on", "reloaded", "wanted"),
    [
        ({}, {"a": START - 1}, {"b": START - 1}, 0, ServicePlan(False, False, "", [])),
        ({}, {"a": START + 1}, {"b": START + 1}, 0, ServicePlan(False, False, "restart", ["a"])),
        ({}, {"a": START - 1}, {"b": START + 1}, 0, ServicePlan(False, False, "reload", ["b"])),
        ({}, {}, {"b": START + 1}, START + 2, ServicePlan(False, False, "", [])),
        ({}, {}, {"b": START + 3}, START + 2, ServicePlan(False, False, "reload", ["b"])),
        ({"ActiveState": "failed"}, {}, {"b": START + 1}, 0, ServicePlan(False, False, "start", [])),
        ({"ActiveState": "activating"}, {}, {}, 0, ServicePlan(False, False, "", [])),
        ({"ActiveState": "activating", "SubState": "auto-restart"}, {}, {}, 0, ServicePlan(False, False, "start", [])),
        ({"UnitFileState": "disabled"}, {}, {}, 0, ServicePlan(True, False, "", [])),
        ({"NeedDaemonReload": "yes"}, {"u": START + 1}, {}, 0, ServicePlan(False, True, "restart", ["u"])),
        ({"ExecMainStartTimestamp": ""}, {"a": START + 1}, {}, 0, ServicePlan(False, False, "", [])),
    ],
)
def test_plan(
    changes: dict[str, str], restart_on: t.Any, reload_on: t.Any, reloaded: float, wanted: ServicePlan
) -> None:
    assert plan(unit(**changes), restart_on, reload_on, reloaded) == wanted


def test_a_missing_unit_would_be_started() -> None:
    assert plan({"LoadState": "not-found", "ActiveState": "inactive"}, {}, {}).changed


class Shown:
    """An AnsibleModule of a machine on which systemd shows these units, or does not answer."""

    def __init__(self, *shown: dict[str, str], rc: int = 0) -> None:
        self.rc, self.asked = rc, list[list[str]]()
        self.said = "\n".join("".join(f"{key}={value}\n" for key, value in unit.items()) for unit in shown)

    def run_command(self, argv: list[str]) -> tuple[int, str, str]:
        self.asked.append(argv)
        return self.rc, self.said, ""


MISSING = {"LoadState": "not-found", "ActiveState": "inactive", "UnitFileState": "", "NeedDaemonReload": "no"}


def test_what_a_service_would_be_left_as_is_asked_once_for_all(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text("")
    os.utime(file, (START - 1, START - 1))
    files = {"munge": [], "slurmd": [str(file), "/etc/systemd/system/other.service"], "missing": []}
    machine = Shown(unit(), unit(), unit(), MISSING)
    assert settled(machine, files) == ["munge", "slurmd"]
    assert [argv[-4:] for argv in machine.asked] == [["munge", "slurmd", "other.service", "missing"]]
    outdated = Shown(unit(), unit(), unit(NeedDaemonReload="yes"), MISSING)
    assert settled(outdated, files) == ["munge"], "the other unit's file was not read"
    os.utime(file, (START + 1, START + 1))
    assert settled(machine, files) == ["munge"], "a file is newer than the process"


@pytest.mark.parametrize(
    "changes", [{"ActiveState": "failed"}, {"UnitFileState": "disabled"}, {"NeedDaemonReload": "yes"}]
)
def test_a_service_with_something_to_do_is_not_settled(changes: dict[str, str]) -> None:
    assert settled(Shown(unit(**changes)), {"slurmd": []}) == []


def test_nothing_is_settled_where_systemd_does_not_answer() -> None:
    assert settled(Shown(unit(), rc=1), {"slurmd": []}) == []
    assert settled(Shown(unit()), {"slurmd": [], "told-of-nothing": []}) == ["slurmd"]


def test_a_service_between_two_attempts_does_not_run() -> None:
    assert running({"ActiveState": "activating", "SubState": "start-pre"})
    for state in ("auto-restart", "auto-restart-queued"):
        assert not running({"ActiveState": "activating", "SubState": state})


def test_drop_ins_of_other_units_are_seen() -> None:
    """systemd has to read them again although nothing of the service itself changed."""
    paths = ["/etc/systemd/system/a.target", "/etc/systemd/system/slurmd.service.d/x.conf", "/usr/local/sbin/a.target"]
    assert units([*paths, "/etc/systemd/system/slurmd.service.d", "/etc/hpcai/a.json"]) == [
        "a.target",
        "slurmd.service",
    ]


class Systemd:
    """systemd as it knows a unit: by the files that it read last, whatever they say by now."""

    def __init__(self, unread: bool, masked: bool = False) -> None:
        self.params = {"name": "munge", "log": None, "files": [], "ready": [], "reload": [], "timeout": 1}
        self.unread, self.masked, self.readings = unread, masked, 0
        self.on_disk = self.known = "disabled"
        self.active = "inactive"

    def run_command(self, argv: list[str], check_rc: bool = False) -> tuple[int, str, str]:
        verb, options = argv[1], argv[2:]
        if verb == "enable" and self.masked:
            assert not check_rc, "Failed to enable unit: Unit file is masked."
            return 1, "", "masked"
        if verb == "enable":
            self.on_disk = "enabled"
        if verb == "start":
            self.active = "active"
        if verb == "daemon-reload" or (verb == "enable" and "--no-reload" not in options):
            self.readings += 1
            self.known, self.unread = self.on_disk, False
        shown = {"LoadState": "loaded", "ActiveState": self.active, "UnitFileState": self.known}
        shown["NeedDaemonReload"] = "yes" if self.unread else "no"
        return 0, "".join(f"{name}={value}\n" for name, value in shown.items()), ""


def run(systemd: Systemd) -> ServicePlan:
    service = Service(t.cast("t.Any", systemd))
    todo = plan(service.show(), {}, {})
    service.run(service.show(), todo)
    return todo


@pytest.mark.parametrize("unread", [True, False])
def test_systemd_reads_all_units_once_and_knows_then_that_one_is_enabled(unread: bool) -> None:
    systemd = Systemd(unread)
    assert run(systemd) == ServicePlan(enable=True, daemon_reload=unread, action="start", stale=[])
    assert (systemd.readings, systemd.on_disk) == (1, "enabled")
    assert run(systemd) == ServicePlan(enable=False, daemon_reload=False, action="", stale=[])
    assert systemd.readings == 1


def test_a_unit_that_cannot_be_enabled_is_an_error_also_where_systemd_reads_units_anyway() -> None:
    with pytest.raises(AssertionError, match="is masked"):
        run(Systemd(unread=True, masked=True))
