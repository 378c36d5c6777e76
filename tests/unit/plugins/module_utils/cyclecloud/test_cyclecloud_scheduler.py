# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which host key of the scheduler counts, and what runs as root there."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from stand_in import stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud import cluster
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cluster_state import Scheduler
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.server_cli import CliError

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHOST"


class Cli:
    """What Scheduler reads of the command line."""

    params: t.ClassVar[dict[str, str]] = {"home": "/opt/cycle_server"}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    stand_in(tmp_path / "ssh", "ssh_host_keys.sh")
    monkeypatch.setenv("ANSWERS_WITH", "IMPOSTOR")
    return tmp_path


def scheduler(directory: Path, *keys: str, node: str = "n-1") -> Scheduler:
    request = {"state_dir": str(directory / "state"), "ssh": str(directory / "ssh"), "scheduler_host_keys": list(keys)}
    return Scheduler(Cli(), request, {"id": node, "name": "scheduler", "address": "10.0.0.4"})  # type: ignore[arg-type]


def asked(directory: Path) -> str:
    log = directory / "log"
    return log.read_text() if log.exists() else ""


def test_nothing_runs_as_root_on_a_machine_whose_key_was_just_taken(directory: Path) -> None:
    """Whoever answered at the scheduler's address first got `sudo azslurm` to run, and was believed."""
    (directory / "state").mkdir()
    first = scheduler(directory)
    first.await_slurm(1, 0)
    with pytest.raises(CliError, match=r"was not run as root.*first contact: ssh-ed25519 IMPOSTOR.*run-command"):
        first.scale()
    assert "azslurm" not in asked(directory)
    later = scheduler(directory)
    assert later.first_key() == ""
    later.scale()
    assert "sudo -i azslurm scale" in asked(directory)


def test_a_key_of_another_node_does_not_count(directory: Path) -> None:
    (directory / "state").mkdir()
    scheduler(directory).await_slurm(1, 0)
    again = scheduler(directory, node="n-2")
    again.await_slurm(1, 0)
    with pytest.raises(CliError, match="was not run as root"):
        again.scale()


def test_with_given_keys_no_other_is_accepted_not_even_one_that_was_kept(directory: Path) -> None:
    (directory / "state").mkdir()
    scheduler(directory).await_slurm(1, 0)
    strict = scheduler(directory, KEY)
    # Not after the time that a scheduler may take to install itself: another key stays another key.
    with pytest.raises(CliError, match=rf"10\.0\.0\.4 has none of the host keys .*{KEY}.*azure_host_keys_info"):
        strict.await_slurm(3600, 0)


def test_with_the_right_key_root_may_run_at_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSWERS_WITH", KEY)
    (directory / "state").mkdir()
    strict = scheduler(directory, KEY)
    strict.await_slurm(1, 0)
    assert strict.first_key() == ""
    strict.scale()
    assert "sudo -i azslurm scale" in asked(directory) and "StrictHostKeyChecking=yes" in asked(directory)


@pytest.mark.parametrize("key", ["", "SHA256:abc", f"{KEY}\nscheduler {KEY}", "@cert-authority * ssh-ed25519 AAAA"])
def test_what_is_no_key_is_refused(key: str) -> None:
    request = {"scheduler_host_keys": [key], "region": "r", "subnet_id": "s", "template": "t", "builtin": ""}
    request.update(scheduler={"machine_type": "m"}, shared={"size_gb": 1, "sched_size_gb": 1})
    request.update(slurm={"version": "v", "node_prefix": "n"})
    assert "scheduler_host_keys has" in "".join(cluster.missing(request))
    assert cluster.missing({**request, "scheduler_host_keys": [KEY, f"{KEY} root@scheduler"]}) == []
