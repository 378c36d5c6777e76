# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Slurm that somebody else runs: site.yml as one of its users, beside a job, and the machines are as they were."""

from __future__ import annotations

import json

from cluster_lab import recap
from conftest import STATE, Site

# All that configures a machine, and who runs on it.
DIGEST = "find /etc /usr/local /root -xdev -type f -not -path '/etc/lab/*' -exec sha256sum {} + | sort | sha256sum"
DAEMONS = "systemctl show -p MainPID,ExecMainStartTimestamp munge slurmd slurmctld slurmdbd mariadb"


def everything(site: Site) -> dict[str, str]:
    return {name: site.root(f"{DIGEST}; {DAEMONS}", name) for name in ("ctl", "c1", "c2")}


def test_a_user_certifies_and_trains_on_a_slurm_that_somebody_else_configured(theirs: Site) -> None:
    # As its administrator has written it, by hand.
    theirs.root("sed -i '/^#/d; 1i # written by hand' /etc/slurm/slurm.conf && scontrol reconfigure")
    theirs.root("install -d /shared/home && install -d -o trainer -g trainer /shared/home/trainer")
    beside = theirs.submit("sleep 45", "--ntasks=1 --nodelist=c1")
    theirs.runs(beside)
    before = everything(theirs)

    theirs.environment = {"HPCAI_REPORT_DIR": str(STATE / "theirs")}
    output = theirs.apply("site.yml", certification_run="theirs")

    assert set(recap(output)) <= {"ctl", "localhost"}, "only the login node is reached"
    assert everything(theirs) == before
    theirs.done(beside)
    certificate = json.loads((STATE / "theirs/certification/theirs/certificate.json").read_text())
    # A node that somebody's job has is left to the job, and untested. When that job ends is the clock's affair.
    proved = {"cleared", "watched"}
    assert certificate["nodes"]["c2"]["status"] in proved, certificate["nodes"]
    assert certificate["nodes"]["c1"]["status"] in {*proved, "untested"}, certificate["nodes"]
    owners = theirs.root("find /shared/home/trainer -not -user trainer | head")
    assert owners == "", owners
    assert "theirs" in (STATE / "theirs/report.html").read_text()
