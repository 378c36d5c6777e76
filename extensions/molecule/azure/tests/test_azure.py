# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From nothing to a certified, trained cluster and back to nothing; each test goes on where the last one ended."""

from __future__ import annotations

import json
import re

import faults
from conftest import CLUSTER, STATE, Cloud, instances, machine, scheduler
from patience import wait_for


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
    ready = r"Cluster train is ready: scheduler [\d.]+, .* 3 x Standard_ND96asr_v4 with 8 GPUs"
    assert re.search(ready, run.output), run.tail
    assert cloud.planned <= set(cloud.leftovers), "what --check said would be made"
    # What CycleCloud made is in the subscription, too, and goes with the rest.
    assert any("virtualMachines/train-scheduler" in found for found in cloud.leftovers), cloud.leftovers
    assert "Slurm creates train-ndv4-1, train-ndv4-2, for about 54.40 an hour" in run.output
    record = json.loads((STATE / "report/run.json").read_text())
    states = {stage["stage"]: stage["state"] for stage in record["stages"]}
    wanted = ("provision", "configure", "certify", "train")
    assert {stage: states.get(stage) for stage in wanted} == dict.fromkeys(wanted, "done")
    certificate = json.loads(max(STATE.glob("report/certification/*/certificate.json")).read_text())
    found = {name: node["status"] for name, node in certificate["nodes"].items()}
    assert found == {"train-ndv4-1": "cleared", "train-ndv4-2": "cleared"}, certificate
    wait_for("the nodes to be gone, and the scheduler alone", lambda: instances() == ["scheduler"], 60)
    assert scheduler("scontrol show node -o train-ndv4-[1-2]").stdout.count("POWER") == 2


def test_the_machine_is_known_by_the_keys_that_azure_has_read_on_it(cloud: Cloud) -> None:
    assert cloud.login().returncode == 0
    known = cloud.inventory / ".cyclecloud/known_hosts"
    right = known.read_text()
    impostor = "AAAAC3NzaC1lZDI1NTE5AAAAIBGC5EmSxTKWqtnSx5nFMFh0Xxk8o4hYlXQqSvKu7JcW"
    known.write_text(re.sub(r"(ssh-ed25519) \S+", rf"\1 {impostor}", right))
    refused = cloud.login()
    known.write_text(right)
    assert refused.returncode == 255 and "Host key verification failed" in refused.stderr


def test_a_job_alone_brings_a_node_that_configures_itself(cloud: Cloud) -> None:
    """The nodes of the run before are still powering down, for SuspendTimeout."""
    done = scheduler("cd; srun --nodelist=train-ndv4-3 --gres=gpu:8 printenv SLURMD_NODENAME CUDA_VISIBLE_DEVICES")
    assert done.stdout.splitlines() == ["train-ndv4-3", "0,1,2,3,4,5,6,7"], done
    said = machine("cat /var/lib/hpcai/node/result.json", "train-ndv4-3").stdout
    assert json.loads(said)["status"] == "ok", said


def test_a_node_is_known_by_the_keys_that_azure_has_read_on_it(cloud: Cloud) -> None:
    """Before a playbook logs in to it, through the CycleCloud machine; nobody was asked."""
    address = machine("getent hosts train-ndv4-3", "scheduler").stdout.split()[0]
    assert cloud.login(address).returncode == 255, "nobody knows it yet"
    run = cloud.play("elastic_steps/known.yml")
    assert (run.rc, run.changed) == (0, 1), run.tail
    assert cloud.login(address).returncode == 0
    known = cloud.inventory / ".cyclecloud/known_nodes"
    assert " ssh-ed25519 " in known.read_text() and address not in known.read_text()
    assert cloud.play("elastic_steps/known.yml").changed == 0


def test_a_second_run_changes_nothing(cloud: Cloud) -> None:
    before = cloud.leftovers
    run = cloud.provision()
    assert (run.rc, run.changed) == (0, 0), run.tail
    assert cloud.leftovers == before
    # The inventory has the node that is up, which has configured itself.
    run = cloud.play("configure.yml", "--limit=scheduler")
    assert (run.rc, run.changed) == (0, 0), run.tail


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


def test_no_secret_is_seen_anywhere(cloud: Cloud) -> None:
    """In outputs, in files of either machine that are not for root alone, on command lines while playbooks ran."""
    assert cloud.seen == {}
    assert faults.secrets_in_files(cloud) == []
