# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the message holds of a daemon that does not stay up and logs to a file of its own."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._systemd import (
    LogFile,
    Service,
    ServiceError,
    ServicePlan,
)

ROLES = Path(__file__).resolve().parents[4] / "roles"
FATAL = "[2026-01-05T10:00:01] fatal: Unable to determine this slurmd's NodeName\n"
START = ServicePlan(enable=False, daemon_reload=False, action="start", stale=[])


class Module:
    """systemd on a machine whose daemon writes to its log and ends."""

    def __init__(self, log: Path, wrote: str) -> None:
        self.params = {"name": "slurmd", "log": str(log), "files": [], "ready": [], "reload": [], "timeout": 1}
        self.log, self.wrote = log, wrote

    def run_command(self, argv: list[str], check_rc: bool = False) -> tuple[int, str, str]:
        if argv[:2] == ["systemctl", "start"]:
            with self.log.open("a") as log:
                log.write(self.wrote)
            return 1, "", "Job for slurmd.service failed because the control process exited with error code."
        if argv[0] == "journalctl":
            return 0, "slurmd.service: Main process exited, code=exited, status=1/FAILURE\n", ""
        return 0, "LoadState=loaded\nActiveState=inactive\nUnitFileState=enabled\n", ""


def message(log: Path, wrote: str) -> str:
    service = Service(t.cast("t.Any", Module(log, wrote)))
    with pytest.raises(ServiceError) as caught:
        service.run(service.show(), START)
    return str(caught.value)


def test_the_message_has_what_the_daemon_wrote_to_its_own_log(tmp_path: Path) -> None:
    log = tmp_path / "slurmd.log"
    log.write_text("[2025-12-24T18:00:00] error: of another day\n")
    text = message(log, FATAL)
    assert "status=1/FAILURE" in text and FATAL.strip() in text and str(log) in text
    assert "of another day" not in text


def test_of_a_long_log_only_the_end_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "slurmd.log"
    text = message(log, "".join(f"line {number}\n" for number in range(20000)))
    assert "line 19999" in text and "line 19987" not in text and "line 19988" in text


def test_a_log_that_was_rotated_meanwhile_is_new(tmp_path: Path) -> None:
    path = tmp_path / "slurmd.log"
    path.write_text("x" * 100)
    log = LogFile(str(path))
    path.rename(tmp_path / "slurmd.log.1")
    path.write_text("short\n")
    assert log.news() == ["short"]


def test_a_link_in_the_directory_of_the_daemon_s_user_is_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "secret", tmp_path / "slurmd.log"
    link.symlink_to(target)
    log = LogFile(str(link))
    target.write_text("root's own\n")
    assert log.news() == []


@pytest.mark.parametrize("log", [None, "", "/nonexistent/slurmd.log"])
def test_a_service_without_a_log_has_its_journal(log: str | None) -> None:
    assert LogFile(log).news() == []


@pytest.mark.parametrize(
    "role, setting", [("slurm_controller", "SlurmctldLogFile"), ("slurm_compute", "SlurmdLogFile")]
)
def test_slurm_s_daemons_log_where_the_roles_look(role: str, setting: str) -> None:
    decided = yaml.safe_load((ROLES / "slurm/vars/main.yml").read_text())["__slurm_base_settings"][setting]
    tasks = yaml.safe_load((ROLES / role / "tasks/main.yml").read_text())
    (run,) = [
        task["hpcai.gpu_cluster.service_current"] for task in tasks if "hpcai.gpu_cluster.service_current" in task
    ]
    assert run["log"] == f"{{{{ slurm_extra_settings['{setting}'] | default('{decided}') }}}}"
