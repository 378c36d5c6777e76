# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell scripts that roles write are written and read by shellcheck; what they hold is looked at."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import time
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_playbook import ansible_playbook, interpreter, of_clone
from patience import patience
from stand_in import answer, stand_in

ROOT = Path(__file__).resolve().parents[3]
TRAINING = ROOT / "roles/training_job"
OWN = ROOT / "roles/training_extras/files/train_sharded.py"
BASE = {
    "ansible_python_interpreter": interpreter(),
    "cluster_shared_dir": "/shared",
    "cluster_sku": "ND96asr_v4",
    "cluster_user": "trainer",
}
TOPOLOGY = {"numa": [], "gpus": [{"index": 0, "cpus": "2-3"}, {"index": 1, "cpus": "0-1"}]}


def play(directory: Path, *plays: tuple[list[dict[str, t.Any]], dict[str, t.Any]]) -> None:
    """Run plays, each of tasks and variables, in one go."""
    text = [
        {"hosts": "localhost", "gather_facts": False, "vars": {**BASE, **variables}, "tasks": tasks}
        for tasks, variables in plays
    ]
    (directory / "play.yml").write_text(yaml.safe_dump(text))
    done = ansible_playbook(
        "-i", "localhost,", "-c", "local", directory / "play.yml", cwd=ROOT, env=of_clone(directory)
    )
    assert done.returncode == 0, done.stdout + done.stderr


def check(*scripts: Path) -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("no shellcheck; make host-packages installs it")
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def job(**variables: t.Any) -> dict[str, t.Any]:
    """What the job script of role training_job is made of."""
    defaults = yaml.safe_load((TRAINING / "defaults/main.yml").read_text())
    inputs = {
        **{name: value for name, value in defaults.items() if not str(value).startswith("{{ undef(")},
        **yaml.safe_load((TRAINING / "vars/main.yml").read_text()),
    }
    return {**inputs, **variables}


JOBS = {
    "virtual environment": job(training_job_gpus_per_node=8),
    "container": job(
        training_job_gpus_per_node=8,
        training_job_launcher="srun",
        training_job_runtime="container",
        training_job_container_image="/shared/images/a.sqsh",
        training_job_container_mounts=["/data:/data:ro"],
        training_job_data=["/shared/sets/a b", "/shared/c.tar"],
        training_job_scratch_dir="/scratch",
    ),
    "conda": job(
        training_job_gpus_per_node=0,
        training_job_launcher="mpirun",
        training_job_runtime="conda",
        training_job_scratch_dir="/scratch",
        training_job_processes_per_node=2,
        training_job_topology=TOPOLOGY,
        training_job_rank_output=True,
        training_job_arguments=["--pause", "a b"],
    ),
    "scratch": job(
        training_job_gpus_per_node=0,
        training_job_launcher="mpirun",
        training_job_processes_per_node=2,
        training_job_scratch_dir="/scratch",
    ),
    "shared": job(training_job_scratch_dir="/scratch", training_job_stage_environment=False),
    "deepspeed": job(
        training_job_gpus_per_node=0, training_job_launcher="deepspeed", training_job_processes_per_node=2
    ),
    "own": job(
        training_job_script=str(OWN),
        training_job_arguments=["--epochs", "3"],
        training_job_stall=3,
        training_job_data=["/shared/c.tar"],
    ),
}
SKUS = ["ND96asr_v4", "Standard_ND96isr_H100_v5", "NC80adis_H100_v5"]


@pytest.fixture(scope="module")
def jobs(scripts: dict[str, str]) -> dict[str, str]:
    """What the job scripts do after they have unpacked their programs."""
    return {name: re.split(r"\nEND_[0-9a-f]{40}\n(?!\ncat)", text)[-1] for name, text in scripts.items()}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Write the job scripts as the role would, all in one go, and return what they hold."""
    directory = tmp_path_factory.mktemp("jobs")
    (directory / "files").symlink_to(TRAINING / "files")
    content = "{{ lookup('ansible.builtin.template', '" + str(TRAINING / "templates/job.sh.j2") + "') }}"
    paths = {name: directory / f"{number}.sh" for number, name in enumerate(JOBS)}
    plays = [
        ([{"ansible.builtin.copy": {"content": content, "dest": str(paths[name])}}], variables)
        for name, variables in JOBS.items()
    ]
    play(directory, *plays)
    check(*paths.values())
    return {name: path.read_text() for name, path in paths.items()}


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Let the role write its examples for each machine type, all in one go, and return where they are."""
    directory = tmp_path_factory.mktemp("examples")
    role = [{"ansible.builtin.include_role": {"name": "hpcai.gpu_cluster.nccl_examples"}}]
    folders = {sku: directory / sku for sku in SKUS}
    play(
        directory, *((role, {"cluster_sku": sku, "nccl_examples_dir": str(folder)}) for sku, folder in folders.items())
    )
    return folders


def test_torchrun_in_a_virtual_environment(jobs: dict[str, str]) -> None:
    text = jobs["virtual environment"]
    assert re.search(r"launch=\(srun .*--ntasks-per-node=1 --cpu-bind=none\)", text)
    assert "export HPCAI_CPU_MASKS='0xffffff000000 0xffffff000000 0xffffff " in text
    assert "--nproc-per-node=8" in text and " --rdzv-conf=is_host=first " in text


def test_ranks_by_srun_in_a_container(jobs: dict[str, str]) -> None:
    text = jobs["container"]
    launch = re.search(r"launch=\(srun.*", text)
    assert launch
    for word in (
        "--ntasks-per-node=8",
        "--cpu-bind=mask_cpu:0xffffff000000,",
        "--container-image=/shared/images/a.sqsh",
        "/shared/training/trainer/ddp_smoke:/shared/training/trainer/ddp_smoke,/data:/data:ro,"
        "/shared/sets/a b:/shared/sets/a b:ro,/shared/c.tar:/shared/c.tar:ro,/scratch:/scratch,"
        "/opt/microsoft/ndv4-topo.xml:/opt/microsoft/ndv4-topo.xml:ro",
        "--container-workdir=/shared/training/trainer/ddp_smoke",
        "--container-env=MASTER_ADDR,MASTER_PORT,",
    ):
        assert word in launch[0], word
    assert "train=(python3 " in text


def test_data_is_staged_on_all_nodes_before_the_ranks_start_where_there_is_a_scratch(jobs: dict[str, str]) -> None:
    text = jobs["container"]
    exported = text.partition("HPCAI_STAGE=")[2].partition("\n")[0]
    # What runs in a container has its environment in the image.
    staged = {"scratch": "/scratch", "data": ["/shared/sets/a b", "/shared/c.tar"], "python": ""}
    assert json.loads(shlex.split(exported)[0]) == staged
    step = text.partition("\nsrun --mpi=none --ntasks-per-node=1 ")[2].partition("|| :")[0]
    assert "--container-image=/shared/images/a.sqsh" in step
    assert "HPCAI_STAGE" in step.partition("--container-env=")[2].partition(" ")[0].split(",")
    assert step.rstrip().endswith('rank.sh" stage python3')
    assert text.index("srun --mpi=none --ntasks-per-node=1 ") < text.index('"${launch[@]}" bash')
    assert "export HPCAI_DATA=$programs/data\n" in jobs["own"]
    assert "HPCAI_STAGE" not in jobs["own"]
    assert "HPCAI_DATA" not in jobs["virtual environment"]


def test_an_environment_is_staged_where_there_is_a_scratch_unless_it_cannot_be_or_shall_not(
    jobs: dict[str, str],
) -> None:
    text = jobs["scratch"]
    exported = text.partition("HPCAI_STAGE=")[2].partition("\n")[0]
    python = "/shared/pytorch/current/bin/python"
    assert json.loads(shlex.split(exported)[0]) == {"scratch": "/scratch", "data": [], "python": python}
    assert text.index(f'rank.sh" stage {python}') < text.index('"${launch[@]}" bash')
    assert " -x HPCAI_STAGE" in text
    assert "HPCAI_DATA" not in text
    # A conda environment has its own path in many of its files.
    assert [name for name in ("conda", "shared", "virtual environment", "own") if "STAGE" in jobs[name]] == []


def test_data_that_ranks_could_not_find_by_its_name_is_refused(tmp_path: Path) -> None:
    cases = [
        (["/a/b", "/a/c.tar"], True),
        (["/a/b", "/c/b"], False),
        (["a/b"], False),
        (["/a:b"], False),
        (["/a/"], False),
    ]
    content = "{{ __training_job_rules | rejectattr('sound') | map(attribute='message') | to_json }}"
    plays = [
        (
            [{"ansible.builtin.copy": {"content": content, "dest": str(tmp_path / str(number))}}],
            job(training_job_data=data),
        )
        for number, (data, dummy) in enumerate(cases)
    ]
    play(tmp_path, *plays)
    for number, (data, sound) in enumerate(cases):
        said = json.loads((tmp_path / str(number)).read_text())
        assert (said == []) is sound, data
        assert all(", ".join(data) in message for message in said)


def test_a_script_of_the_users_own_travels_with_what_it_imports(jobs: dict[str, str], scripts: dict[str, str]) -> None:
    assert f'\ncat >"$programs/{OWN.name}" <<\'END_' in scripts["own"]
    assert 'cat >"$programs/training_run.py"' in scripts["own"]
    assert "$programs/stripes.py" not in scripts["own"]
    assert f"script=$programs/{OWN.name}\n" in jobs["own"]
    assert re.search(r'train=\(\S+ "\$script" --epochs 3\)', jobs["own"])


def test_a_training_without_a_step_for_too_long_is_ended(scripts: dict[str, str], tmp_path: Path) -> None:
    """The job's own lines in bash, with a launcher that hangs, as ranks do that wait for one that is gone."""
    watch = scripts["own"].partition("# Rank 0 notes every step.")[2].partition("\nrm -f")[0]
    short = watch.replace("sleep 30", "sleep 0.2").replace("sleep 60", "sleep 0.2")
    # What asks Slurm about the nodes has no Slurm here: none was started anew.
    short = re.sub(r"! started_anew \|\|.*?launcher\"\n", ":\n", short, flags=re.DOTALL)
    assert "started_anew" not in short
    (tmp_path / "journal.jsonl").touch()
    program = f"""checkpoints={tmp_path} HPCAI_RESULT={tmp_path}/result.json began=0
    trap '' TERM; sleep 600 & launcher=$!; trap - TERM
    #{short}
    watch & watcher=$!; wait $launcher; echo "ended with $?"; kill $watcher"""
    begin = time.time()
    done = subprocess.run(["bash", "-uc", program], capture_output=True, text=True, timeout=patience(60), check=False)
    assert "ended with 137" in done.stdout, done.stderr
    assert time.time() - begin >= 3
    assert json.loads((tmp_path / "result.json").read_text()) == {"problem": "no step for 3 s"}


def test_deepspeeds_launcher_is_told_what_its_own_parser_takes(jobs: dict[str, str]) -> None:
    """The job's own lines in bash; the launcher of each node decodes the ranks of all."""
    text = jobs["deepspeed"]
    assert re.search(r"launch=\(srun .*--ntasks-per-node=1 --cpus-per-task=2\)", text)
    lines = text.partition("# The part of DeepSpeed's launcher")[2].partition("\n\n")[0]
    program = f"""set -eu; hosts=(c1 c2); launch=(); programs=/p MASTER_ADDR=c1 MASTER_PORT=61007
    #{lines}
    printf '%s\n' "${{launch[@]}}" """
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    words = done.stdout.split()
    assert words[:6] == [
        "bash",
        "/p/rank.sh",
        "agent",
        "/shared/pytorch/current/bin/python",
        "-m",
        "deepspeed.launcher.launch",
    ]
    options = dict(word.lstrip("-").partition("=")[::2] for word in words[6:])
    world = json.loads(base64.urlsafe_b64decode(options.pop("world_info")))
    assert list(world.items()) == [("c1", [0, 1]), ("c2", [0, 1])]
    assert options == {
        "node_rank": "own",
        "master_addr": "c1",
        "master_port": "61007",
        "no_python": "",
        "no_local_rank": "",
    }


def test_ranks_are_told_where_other_nodes_are(jobs: dict[str, str]) -> None:
    for name, text in jobs.items():
        assert '; then export HPCAI_HOSTS="${hosts[0]} ${hosts[-1]}"; fi' in text, name
    assert "HPCAI_HOSTS" in jobs["conda"].partition("-x ")[2].partition(")")[0]
    assert ",HPCAI_HOSTS," in jobs["container"].partition("--container-env=")[2].partition(")")[0]


def test_mpirun_in_a_conda_environment(jobs: dict[str, str]) -> None:
    text = jobs["conda"]
    assert "export HPCAI_CPU_MASKS='0xc 0x3'" in text
    assert "--map-by ppr:2:node --bind-to none -x MASTER_ADDR" in text
    assert "-x CONDA_PREFIX" in text
    assert "export CONDA_PREFIX=/shared/pytorch/current" in text
    assert "--pause 'a b')" in text


@pytest.mark.parametrize("sku", SKUS)
def test_the_nccl_examples(examples: dict[str, Path], sku: str) -> None:
    folder = examples[sku]
    scripts = sorted(folder.glob("*.sh"))
    assert {path.stem.rpartition("_")[2] for path in scripts} == {"mpirun", "srun", "container"}
    check(*scripts)
    for path in scripts:
        text = path.read_text()
        # A line that is not at its place is no option: the guides' indented ones were never read.
        assert text.count("SBATCH --") == len(re.findall("^#SBATCH --", text, re.MULTILINE))
        # Everybody may write into logs: a name that can be foreseen there could be somebody's link.
        assert "#SBATCH --output=/dev/null\n" in text
        assert f"log=$(mktemp {folder}/logs/" in text
        assert "export OMPI_MCA_coll_hcoll_enable=0" in text
    if sku == "ND96asr_v4":
        text = (folder / "nccl_allreduce_srun.sh").read_text()
        assert "expected: busbw >= 185 GB/s at 8589934592 bytes on 2 nodes or more" in text
        assert "yosoyjay/cyclecloud-llm README.md" in text
        assert ",0xffffff000000000000 " in text
        assert "CUDA_VISIBLE_DEVICES=2,3,0,1,6,7,4,5" in (folder / "nccl_allreduce_mpirun.sh").read_text()


def test_mpirun_gets_a_hostfile_of_idle_nodes_outside_of_jobs(examples: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    answer(tmp_path / "bin/sinfo", "c3\nc1\nc2\nc1\n")
    answer(tmp_path / "bin/all_reduce_perf_mpi")
    stand_in(tmp_path / "bin/mpirun", "mpirun_hostfile.sh")
    variables = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    script = examples["ND96asr_v4"] / "nccl_allreduce_mpirun.sh"
    done = subprocess.run([script], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    hosts, words = done.stdout.splitlines()[:-1], done.stdout.splitlines()[-1].split()
    assert hosts == ["c1 slots=8", "c2 slots=8"]
    assert words[:6] == ["-np", "16", "--map-by", "ppr:2:numa", "--bind-to", "numa"]
    assert "OMPI_MCA_pml" not in words, "Open MPI hands its own variables on, and warns when it is told to"
    assert words[-8:] == "-b 8 -e 8589934592 -f 2 -g 1".split()
