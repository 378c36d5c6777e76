# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab that is upgraded: what every lab has, and cutting an upgrade off."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
from cluster_lab import ROOT, Lab
from patience import patience

SCENARIO = Path(__file__).parents[1]
STATE = Path(os.environ.setdefault("LAB_STATE", str(ROOT / ".build/molecule-upgrade")))


class UpgradeLab(Lab):
    """One lab, and what is done to it."""

    def cut_off(self, name: str, **variables: t.Any) -> None:
        """Upgrade until dpkg unpacks on a node, then kill the upgrade, and what it does on that node, at once."""
        run = self.start("upgrade_slurm.yml", **variables)
        node = self.container(name)
        # It looks by itself: a podman for each look keeps a processor busy that the upgrade needs.
        look = ["timeout", str(patience(300)), "sh", "-c", "until pgrep -f '[d]pkg .*--unpack'; do sleep 0.05; done"]
        with subprocess.Popen(["podman", "exec", node, *look], stdout=subprocess.DEVNULL) as seen:
            while seen.poll() is None and run.poll() is None:
                time.sleep(0.05)
            seen.kill()
        assert seen.returncode == 0, f"dpkg was not seen on {name}"
        os.killpg(run.pid, signal.SIGKILL)
        subprocess.run(["podman", "exec", node, "pkill", "-KILL", "-x", "apt-get|dpkg|dpkg-deb|python3"], check=False)
        run.communicate()

    def unreachable(self, name: str, yes: bool) -> None:
        """Keep Ansible out of a node, or let it in again; Slurm notices nothing."""
        words = "systemctl stop ssh.socket ssh; pkill sshd || true" if yes else "systemctl start ssh"
        subprocess.run(["podman", "exec", self.container(name), "sh", "-c", words], check=True)

    def running(self) -> dict[str, str]:
        """Which process is each daemon."""
        places = (("ctl", "slurmctld"), ("ctl", "slurmdbd"), ("c1", "slurmd"), ("c2", "slurmd"))
        show = "systemctl show --value --property=MainPID"
        return {f"{host} {unit}": self.root(f"{show} {unit}", host).strip() for host, unit in places}


@pytest.fixture(scope="session")
def lab() -> UpgradeLab:
    return UpgradeLab(SCENARIO, STATE)
