# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel NFS and CIFS between two machines, and what becomes of them when the server goes away."""

from __future__ import annotations

import time

from conftest import PASSWORD, Machine, VmLab, eventually
from patience import patience

# Numbers and when each was safe on the server's disk, until somebody says stop.
WRITER = """
import os, time
with open("/shared/numbers", "w") as out:
    number = 0
    while not os.path.exists("/shared/stop"):
        out.write(f"{number} {time.time()}\\n")
        out.flush()
        os.fsync(out.fileno())
        number += 1
        time.sleep(0.05)
"""
# Every command line that there is until a file says that it is enough; another says that somebody looks.
WATCH = """
import glob, os
seen = set()
while not os.path.exists("/run/enough"):
    open("/run/watched", "w").close()
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            seen.add(open(path, "rb").read().replace(b"\\0", b" ").decode(errors="replace"))
        except OSError:
            pass
print("\\n".join(sorted(seen)))
"""


def reached(machine: Machine, before: str) -> bool:
    """Whether SSH answers, in another boot."""
    try:
        return machine.system.boot_id() != before
    except ValueError:  # the machine does not answer
        return False


def mounted(lab: VmLab, path: str, host: str = "c1") -> str:
    return str(lab.host(host).run(f"grep ' {path} ' /proc/mounts").stdout)


def test_shared_directory_is_kernel_nfs_of_version_4(lab: VmLab) -> None:
    assert mounted(lab, "/shared").startswith("ctl:/export/shared /shared nfs4 ")
    assert lab.root("cat /proc/fs/nfsd/versions").split()[0] == "-3"
    lab.run("echo from-ctl > /shared/greeting")
    assert lab.run("cat /shared/greeting", host="c1").stdout == "from-ctl\n"


def test_users_are_the_same_and_root_is_nobody(lab: VmLab) -> None:
    lab.run("rm -f /shared/mine; touch /shared/mine", host="c1")
    assert lab.root("stat -c %U /shared/mine") == "trainer"
    assert lab.host("c1").run("chown root: /shared/mine").rc != 0
    lab.root("rm -f /shared/of-root; touch /shared/of-root", "c1")
    assert lab.root("stat -c %u /shared/of-root") == "65534"


def test_cifs_is_mounted_and_serves_its_user(lab: VmLab) -> None:
    assert " cifs " in mounted(lab, "/data")
    lab.run("echo from-c1 > /data/greeting", host="c1")
    assert lab.run("cat /export/data/greeting").stdout == "from-c1\n"
    assert lab.run("cat /data/greeting", user="guest", host="c1").rc != 0


def test_password_is_in_one_file_that_only_root_reads(lab: VmLab) -> None:
    found = lab.root(f"grep -rlsF {PASSWORD} /etc /run /var/log /var/lib /root /home /tmp || true", "c1").split()
    assert found == ["/etc/hpcai/cifs/-data"]
    assert lab.root(f"stat -c '%a %U' {found[0]} /etc/hpcai/cifs", "c1").split() == ["600", "root", "700", "root"]
    for name in lab.addresses:
        assert lab.root(f"journalctl --no-pager -o export | grep -cF {PASSWORD} || true", name) == "0"


def test_password_is_on_no_command_line(lab: VmLab) -> None:
    lab.root(f"cat > /run/watch.py <<'END'\n{WATCH}\nEND", "c1")
    mount = "while ! [ -e /run/watched ]; do sleep 0.1; done; systemctl start data.mount; touch /run/enough"

    def caught() -> bool:
        if lab.host("c1").run("rm -f /run/enough /run/watched; systemctl stop data.mount").rc:
            return False  # somebody is looking into it, such as a health check
        seen = lab.root(f"({mount}) >/dev/null 2>&1 & python3 /run/watch.py; wait", "c1")
        assert PASSWORD not in seen
        return "mount.cifs" in seen or "credentials=/etc/hpcai/cifs/-data" in seen

    eventually(caught, "the mount to be caught in the act")
    assert " cifs " in mounted(lab, "/data")


def test_silent_server_is_named_and_nothing_hangs(lab: VmLab) -> None:
    before = mounted(lab, "/shared")
    lab.machine("ctl").ask("stop")
    try:
        # It ends while the server is silent: what hangs would not end before somebody lets the server go on.
        status, said = lab.ansible.run(
            "ansible", "c1", "-m", "hpcai.gpu_cluster.shared_mount", "-a", "path=/shared patience=5"
        )
        assert status != 0
        assert "/shared (ctl:/export/shared) is mounted and does not answer" in said
    finally:
        lab.machine("ctl").ask("cont")
    assert lab.host("c1").run(f"timeout {patience(120):.0f} stat -f /shared").rc == 0
    assert mounted(lab, "/shared") == before


def test_power_cut_of_the_server_under_a_writing_job(lab: VmLab) -> None:
    """Controller, database and storage lose their power at once; the job on the client notices a pause."""
    lab.run(f"rm -f /shared/stop; cat > /shared/writer.py <<'END'\n{WRITER}\nEND")
    job = lab.submit("python3 /shared/writer.py")
    eventually(lambda: lab.run("tail -n1 /shared/numbers").stdout, "the job to write")
    # slurmctld saves up to 5 s late, and a job that it forgot stays RUNNING in the accounting: see a change saved.
    state = lab.root("scontrol show config | awk '$1 == \"StateSaveLocation\" {print $3}'")
    lab.root(f"touch /run/before && scontrol update jobid={job} comment=seen")
    eventually(lambda: lab.host("ctl").run(f"test {state}/job_state -nt /run/before").rc == 0, "the job to be saved")
    ctl = lab.machine("ctl")
    begin = time.monotonic()
    ctl.kill()
    ctl.start()
    away = time.monotonic() - begin
    ctl.wait(patience(300))
    eventually(lambda: lab.host("ctl").run("scontrol ping").rc == 0, "slurmctld to answer")
    after = lab.root("date +%s.%N", "c1")
    eventually(
        lambda: (lab.run("tail -n1 /shared/numbers").stdout.split()[1:] or [""])[0] > after, "the job to write on"
    )
    lab.run("touch /shared/stop")
    eventually(lambda: lab.account(job, "State") == "COMPLETED", f"job {job} to be COMPLETED in sacct")
    lines = [line.split() for line in lab.run("cat /shared/numbers").stdout.splitlines()]
    assert [int(line[0]) for line in lines] == list(range(len(lines))), "a number is missing"
    times = [float(line[1]) for line in lines]
    assert max(later - sooner for sooner, later in zip(times, times[1:])) > away, "the server was never away"
    eventually(lambda: lab.run("cat /data/greeting", host="c1").stdout == "from-c1\n", "CIFS to be there again")
    eventually(lab.works, "a job to run")


def test_client_that_boots_without_its_server(lab: VmLab) -> None:
    """It can be reached, slurmd waits, and once the server is there everything comes by itself."""
    ctl, client = lab.machine("ctl"), lab.machine("c1")
    before = client.system.boot_id()
    ctl.stop(patience(120))
    client.reset()
    # systemd says "starting" as long as the mounts are tried again: to be reached is what counts.
    eventually(lambda: reached(client, before), "the client to be reached", 300)
    assert not mounted(lab, "/shared")
    again = "systemctl list-units --all --plain 'hpcai-mount-again@*'"
    eventually(lambda: "again" in lab.root(again, "c1"), "the mounts to be tried again")
    assert lab.host("c1").run("systemctl is-active slurmd").stdout.strip() != "active"
    ctl.start()
    ctl.wait(patience(300))
    eventually(lambda: mounted(lab, "/shared") and mounted(lab, "/data"), "the mounts to be back")
    eventually(lab.works, "a job to run")
    eventually(lambda: lab.root("systemctl --failed --plain --no-legend", "c1") == "", "no unit to be failed")
