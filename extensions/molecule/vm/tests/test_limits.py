# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs get what they asked for and nothing else, by the kernel's own cgroup v2."""

from __future__ import annotations

import re

import pytest
from conftest import VmLab, eventually

OPEN = """
import errno, os
for number in range(2):
    try:
        os.open(f"/dev/nvidia{number}", os.O_RDWR)
        print("opened")
    except OSError as exc:
        print(errno.errorcode[exc.errno])
"""


def test_job_is_in_a_cgroup_of_version_2(lab: VmLab) -> None:
    assert lab.run("stat -f -c %T /sys/fs/cgroup", host="c1").stdout.strip() == "cgroup2fs"
    said = lab.run("srun -N1 cat /proc/self/cgroup").stdout
    assert re.fullmatch(r"0::/system\.slice/.*/job_\d+/step_0/user/task_0\n", said)


def test_job_is_held_to_its_cores(lab: VmLab) -> None:
    """Also when it asks for more: affinity alone could be widened again, a cpuset cannot."""
    job = "nproc; taskset --cpu-list 0-1 nproc; cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/../cpuset.cpus"
    first, widened, cpus = lab.run(f"srun -n1 -c1 bash -c '{job}'").stdout.split()
    assert (first, widened) == ("1", "1")
    assert cpus in ("0", "1")
    assert lab.run("srun -n1 -c2 nproc").stdout.strip() == "2"


def test_job_over_its_memory_is_killed_and_recorded(lab: VmLab) -> None:
    job = lab.submit("python3 -c 'x = bytearray(300 << 20); print(len(x))'", "--mem=100M")
    eventually(lambda: lab.account(job, "State") == "OUT_OF_MEMORY", f"job {job} to be OUT_OF_MEMORY in sacct")
    enough = lab.submit("python3 -c 'x = bytearray(300 << 20); print(len(x))'", "--mem=500M")
    eventually(lambda: lab.account(enough, "State") == "COMPLETED", f"job {enough} to be COMPLETED in sacct")


@pytest.mark.parametrize(("options", "answers"), [("", ["EPERM", "EPERM"]), ("--gres=gpu:1", ["ENXIO", "EPERM"])])
def test_job_opens_its_own_devices_only(lab: VmLab, options: str, answers: list[str]) -> None:
    """No driver is behind the device nodes, so one that may be opened answers ENXIO."""
    lab.host("ctl").run(f"cat > /shared/open.py <<'END'\n{OPEN}\nEND\nchmod 0644 /shared/open.py")
    assert sorted(lab.run(f"srun -N1 {options} python3 /shared/open.py").stdout.split()) == sorted(answers)


def test_daemon_itself_is_not_held(lab: VmLab) -> None:
    said = lab.root("systemctl show --property=ControlGroup slurmd; pgrep -f slurmstepd.infinity", "c1")
    assert "ControlGroup=/system.slice/slurmd.service" in said
