# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From nothing to a certified, trained cluster and back to nothing; each test goes on where the last one ended."""

from __future__ import annotations

import json
import re
import subprocess

import faults
from conftest import CLUSTER, LAB, STATE, Cloud, instances, machine, scheduler
from patience import wait_for

TRAININGS = "sacct --allocations --noheader --starttime=now-1day --name=ddp_smoke --format=JobID,State"


def test_check_from_nothing_tells_everything_and_makes_nothing(cloud: Cloud) -> None:
    run = cloud.provision("--check")
    assert run.rc == 0, run.tail
    assert cloud.leftovers == []
    cloud.planned = set(re.findall(r"would be made: (\S+?)\"?,?$", run.output, re.MULTILINE))
    for name in ("train-rg", "train-vnet", "train-nat", "train-server-nsg", "train-cyclecloud", "train-locker"):
        assert any(found.endswith(f"/{name}") for found in cloud.planned), (name, cloud.planned)


def test_a_fault_on_the_way_is_explained(cloud: Cloud) -> None:
    """The next test goes on from what it left. All faults: `make azure-faults`."""
    refused = faults.FAULTS["RequestDisallowedByPolicy for the network"]
    cloud.ask("faults", [refused.rule])
    run = cloud.play("provision_steps/azure.yml", "--tags=azure_infra")
    cloud.ask("faults", [])
    assert run.rc != 0
    assert re.search(refused.told, run.output) and "ask for an exemption" in run.output, run.tail
    assert any(found.endswith("/train-nat") for found in cloud.leftovers)


def test_site_goes_the_whole_way(cloud: Cloud) -> None:
    """From there to certified and trained nodes that are gone again; Slurm's daemons are real."""
    run = cloud.play("site.yml", timeout=1500)
    assert run.rc == 0, run.tail
    ready = r"Cluster train is ready: scheduler [\d.]+, .* 4 x Standard_ND96asr_v4 with 8 GPUs"
    assert re.search(ready, run.output), run.tail
    assert cloud.planned <= set(cloud.leftovers), "what --check said would be made"
    # What CycleCloud made is in the subscription, too, and goes with the rest.
    assert any("virtualMachines/train-scheduler" in found for found in cloud.leftovers), cloud.leftovers
    assert "Slurm creates train-ndv4-1, train-ndv4-2, train-ndv4-3, for about 81.60 an hour" in run.output
    record = json.loads((STATE / "report/run.json").read_text())
    states = {stage["stage"]: stage["state"] for stage in record["stages"]}
    wanted = ("provision", "configure", "certify", "train")
    assert {stage: states.get(stage) for stage in wanted} == dict.fromkeys(wanted, "done")
    certificate = json.loads(max(STATE.glob("report/certification/*/certificate.json")).read_text())
    found = {name: node["status"] for name, node in certificate["nodes"].items()}
    assert found == dict.fromkeys(["train-ndv4-1", "train-ndv4-2", "train-ndv4-3"], "cleared"), certificate
    wait_for("the nodes to be gone, and the scheduler alone", lambda: instances() == ["scheduler"], 60)
    # azslurmd makes a node DOWN that CycleCloud still has when it looks.
    shown = scheduler("scontrol show node -o train-ndv4-[1-3]").stdout
    assert shown.count("POWER") + shown.count("Reason=cyclecloud_") >= 3, shown


def test_accounting_has_the_jobs(cloud: Cloud) -> None:
    """In the MySQL server that the inventory names, by TLS alone, and with what the jobs used."""
    ask = "sacct --allocations --parsable2 --noheader --starttime=now-1day --format=User,State,AllocTRES,NodeList"
    wait_for("jobs in the accounting", lambda: "|COMPLETED|" in scheduler(ask).stdout, 60)
    jobs = [line.split("|") for line in scheduler(ask).stdout.splitlines()]
    assert {job[0] for job in jobs} == {"hpcadmin"}, jobs
    assert any(job[1] == "COMPLETED" and "gres/gpu=24" in job[2] for job in jobs), jobs
    gathered = scheduler("sacct --parsable2 --noheader --starttime=now-1day --format=MaxRSS").stdout
    assert re.search(r"^[1-9]", gathered, re.MULTILINE), gathered


def test_the_machine_is_known_by_the_keys_that_azure_has_read_on_it(cloud: Cloud) -> None:
    assert cloud.login().returncode == 0
    config = str(cloud.inventory / ".cyclecloud/ssh_config")
    way = subprocess.run(["ssh", "-G", "-F", config, cloud.address], capture_output=True, text=True, check=True).stdout
    assert "serveraliveinterval 30\n" in way, "an idle connection is dropped after four minutes"
    known = cloud.inventory / ".cyclecloud/known_hosts"
    right = known.read_text()
    impostor = "AAAAC3NzaC1lZDI1NTE5AAAAIBGC5EmSxTKWqtnSx5nFMFh0Xxk8o4hYlXQqSvKu7JcW"
    known.write_text(re.sub(r"(ssh-ed25519) \S+", rf"\1 {impostor}", right))
    refused = cloud.login()
    known.write_text(right)
    assert refused.returncode == 255 and "Host key verification failed" in refused.stderr


def test_a_job_alone_brings_a_node_that_configures_itself(cloud: Cloud) -> None:
    """The nodes of the run before are still powering down, for SuspendTimeout."""
    done = scheduler("cd; srun --nodelist=train-ndv4-4 --gres=gpu:8 printenv SLURMD_NODENAME CUDA_VISIBLE_DEVICES")
    assert done.stdout.splitlines() == ["train-ndv4-4", "0,1,2,3,4,5,6,7"], done
    said = machine("cat /var/lib/hpcai/node/result.json", "train-ndv4-4").stdout
    assert json.loads(said)["status"] == "ok", said


def test_a_node_that_reboots_is_converged_again_and_takes_jobs() -> None:
    """CycleCloud starts slurmd at every boot before the node is ready, and fails the node where that fails."""
    node, unit = "train-ndv4-4", "lab-user-data"  # what the emulated jetpack runs in
    subprocess.run(
        ["podman", "restart", "--time=5", f"hpcai-{LAB['lab_name']}-{node}"], check=True, capture_output=True
    )
    ended = f"systemctl show --value --property=ExecMainExitTimestampMonotonic {unit}"
    wait_for("the converge to end", lambda: machine(ended, node).stdout.strip() not in ("", "0"), 120)
    said = machine(f"systemctl show --value --property=ExecMainStatus {unit}; journalctl -n 20 -u {unit}", node).stdout
    assert said.startswith("0\n"), said
    done = scheduler(f"cd; srun --nodelist={node} --gres=gpu:8 printenv SLURMD_NODENAME")
    assert done.stdout == f"{node}\n", done


def test_root_of_a_node_is_nobody_on_the_shared_directory(cloud: Cloud) -> None:
    """As on the scheduler's export; nodes were certified and have trained so. /sched is exported without that."""
    home, node = "/shared/home/hpcadmin", "train-ndv4-4"
    for asked in (f"touch {home}/mine", f"ls {home}", "mkdir /shared/mine"):
        refused = machine(asked, node)
        assert refused.returncode and "Permission denied" in refused.stderr, refused
    assert machine("touch /sched/train/mine && rm /sched/train/mine", node).returncode == 0
    wrote = scheduler("cd; srun --nodelist=train-ndv4-4 sh -c 'echo theirs >wrote'")
    assert wrote.returncode == 0, wrote
    assert scheduler(f"cat {home}/wrote").stdout == "theirs\n"


def test_a_node_is_known_by_the_keys_that_azure_has_read_on_it(cloud: Cloud) -> None:
    """Before a playbook logs in to it, through the CycleCloud machine; nobody was asked."""
    address = machine("getent hosts train-ndv4-4", "scheduler").stdout.split()[0]
    assert cloud.login(address).returncode == 255, "nobody knows it yet"
    run = cloud.play("elastic_steps/known.yml")
    assert (run.rc, run.changed) == (0, 1), run.tail
    assert cloud.login(address).returncode == 0
    known = cloud.inventory / ".cyclecloud/known_nodes"
    assert " ssh-ed25519 " in known.read_text() and address not in known.read_text()
    assert cloud.play("elastic_steps/known.yml").changed == 0


def test_a_second_run_has_nodes_come_and_go_and_changes_nothing_else(cloud: Cloud) -> None:
    """The same command as a user types it; the inventory has the node that is up, which has configured itself."""
    before = [found for found in cloud.leftovers if "virtualMachines" not in found]
    trained = scheduler(TRAININGS).stdout
    run = cloud.play("site.yml", timeout=1500)
    assert run.rc == 0, run.tail
    elastic = "hpcai.gpu_cluster.elastic_nodes : "
    assert run.changes == {
        f"{elastic}wait | Have Slurm create the nodes, and wait a minute for them",
        f"{elastic}suspended | Keep the nodes, or have Slurm remove those that this run resumed",
    }, run.tail
    # Nothing is trained twice; nodes are certified as often as somebody asks.
    assert scheduler(TRAININGS).stdout == trained
    assert len(list(STATE.glob("report/certification/*/certificate.json"))) == 2
    assert [found for found in cloud.leftovers if "virtualMachines" not in found] == before


def test_nothing_is_there_twice(cloud: Cloud) -> None:
    names = [found.rsplit("/providers/", 1)[-1] for found in cloud.leftovers if "roleAssignments" not in found]
    assert len(names) == len(set(names))
    assert faults.duplicates(cloud) == []


def test_destroy_lists_first_and_deletes_only_what_is_confirmed(cloud: Cloud) -> None:
    before = cloud.leftovers
    run = cloud.destroy(confirm="")
    assert run.rc == 0, run.tail
    assert run.changed == 0
    assert "Nothing was deleted. To delete everything in this list: -e confirm=train" in run.output
    assert "train-cyclecloud" in run.output
    assert cloud.destroy(confirm="other").rc != 0
    assert cloud.leftovers == before


def test_what_an_administrator_locked_is_refused(cloud: Cloud) -> None:
    with faults.locked(cloud, "production, ask Anna"):
        run = cloud.destroy()
        assert run.rc != 0
        assert "production, ask Anna" in run.output and "az lock delete --ids" in run.output, run.tail
        assert any(found.endswith("/train-cyclecloud") for found in cloud.leftovers)


def test_nothing_that_is_not_due_is_swept(cloud: Cloud) -> None:
    before = cloud.leftovers
    run = cloud.play("expire.yml", azure_teardown_days=7)
    assert run.rc == 0, run.tail
    run = cloud.play("destroy.yml", azure_teardown_due_only=True)
    assert run.rc == 0 and "train stays until" in run.output, run.tail
    assert cloud.leftovers == before


def test_destroy_leaves_nothing(cloud: Cloud) -> None:
    run = cloud.destroy()
    assert run.rc == 0, run.tail
    assert cloud.leftovers == []
    assert instances() == []
    report = json.loads((STATE / f"report/teardown-{CLUSTER}.json").read_text())
    assert report["left"] == []
    assert any(found.endswith("/resourceGroups/train-rg") for found in report["deleted"])


def test_destroying_nothing_changes_nothing(cloud: Cloud) -> None:
    run = cloud.destroy()
    assert (run.rc, run.changed) == (0, 0), run.tail


def test_the_day_that_has_come_takes_away_what_there_is(cloud: Cloud) -> None:
    """By the job in Azure Automation, without a control host; what lies above the groups is destroy.yml's."""
    job = faults.expired(cloud)
    assert job["status"] == "Completed", job
    wait_for("the groups to go", lambda: not any("/resourcegroups/" in found.lower() for found in cloud.leftovers), 60)
    assert cloud.destroy().rc == 0
    assert cloud.leftovers == []


def test_no_secret_is_seen_anywhere(cloud: Cloud) -> None:
    """In outputs, in files of either machine that are not for root alone, on command lines while playbooks ran."""
    assert cloud.seen == {}
    assert faults.secrets_in_files(cloud) == []
