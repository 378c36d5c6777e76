# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""python_environment with real interpreters, pip and uv; torch is a stand-in of a few lines, micromamba is emulated."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import typing as t
from pathlib import Path

import pytest
from conftest import Cluster, Json
from environments import PATH, Site, conda_lock, wheel
from stand_in import answer, stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import versions as driving

NO_HASH = f"--hash=sha256:{'0' * 64}"
uv = pytest.mark.skipif(not shutil.which("uv", path=PATH), reason="needs uv on PATH (pip install uv==0.13.9)")
INSTALLERS = [pytest.param("uv", marks=uv), "pip"]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize("installer", INSTALLERS)
def test_check_real_check_real(site: Site, installer: str) -> None:
    found = [site.run(installer=installer, check_mode=mode) for mode in (True, False, True, False)]
    assert [one["changed"] for one in found] == [True, True, False, False]
    assert found[0]["needs"] == {"packages": True, "proof": False}
    assert found[1]["environment"]["facts"]["torch"] == "1.0"
    assert site.current() == found[0]["environment"]["name"] == found[3]["environment"]["name"]
    assert [one.name for one in site.envs.glob(".*") if one.name != ".lock"] == [f".{site.current()}.json"]
    assert (
        subprocess.check_output([site.python(), "-c", "import torch; print(torch.__version__)"], text=True) == "1.0\n"
    )


@pytest.mark.parametrize("installer", INSTALLERS)
def test_without_files_the_host_s_own_settings_count(site: Site, installer: str) -> None:
    # uv fails where pip passes over an index that is out of reach.
    indexes = ["https://index.example.org/simple"] if installer == "pip" else []
    site.run(installer=installer, folders=[], indexes=indexes)
    assert site.python().exists()


def test_an_environment_that_is_there_is_packed_when_that_is_wanted(site: Site) -> None:
    site.run()
    found = [site.run(archive=True, check_mode=mode) for mode in (True, False, True)]
    assert [one["changed"] for one in found] == [True, True, False]
    archive = site.envs / site.current() / "environment.tar"
    with tarfile.open(archive) as packed:
        names = packed.getnames()
    assert {"./bin/python", "./pyvenv.cfg", "./manifest.json"} <= set(names)
    assert "./environment.tar" not in names
    assert site.run()["changed"] is False
    assert archive.exists()
    assert [one.name for one in site.envs.glob(".cache-*")] == []


def test_conda_gets_the_command_line_that_it_knows(site: Site) -> None:
    text = conda_lock(site.wheels)
    found = site.run(
        installer="conda", installer_path=str(site.micromamba()), builds={"mine": {"lock": text, "cuda": None}}
    )
    assert found["environment"]["name"].startswith("mine-conda-")
    assert site.python().exists()
    refused = site.run(installer="pip", builds={"mine": {"lock": text}}, fails=True)
    assert "lock file mine is an explicit conda specification, which the installer pip does not read" in refused["msg"]


def test_another_lock_file_makes_another_environment_and_the_old_one_stays(site: Site) -> None:
    first = site.run()["environment"]["name"]
    second = site.run(builds={"cpu": {"lock": site.lock(extra=True)}})
    assert second["environment"]["name"] != first
    assert site.current("current.previous") == first
    assert (site.envs / first / "manifest.json").exists()
    assert site.run()["diff"]["after"] == {"current": first}
    assert site.current("current.previous") == second["environment"]["name"]


def test_wheels_of_other_roles_make_an_environment_of_their_own(site: Site) -> None:
    base = site.run()["environment"]["name"]
    apex = wheel(site.wheels / "other", "apex", "0.1", "import torch\n")
    more = {"link": "apex", "wheels": [apex], "imports": ["apex"]}
    found = site.run(**more)
    assert (site.current(), site.current("apex")) == (base, found["environment"]["name"])
    assert found["environment"]["proofs"]["local"]["imports"] == ["apex"]
    assert not site.run(**more)["changed"]
    # Another import is proved in the environment that is there.
    assert "No module named 'amp_C'" in site.run(**{**more, "imports": ["apex", "amp_C"]}, fails=True)["msg"]


def test_a_wheel_that_is_not_the_pinned_one_is_not_installed(site: Site) -> None:
    apex = {**wheel(site.wheels / "other", "apex", "0.1", ""), "sha256": "0" * 64}
    assert "asked for was 0000" in site.run(wheels=[apex], fails=True)["msg"]
    assert not site.complete()


@pytest.mark.parametrize("installer", INSTALLERS)
def test_a_package_with_another_checksum_is_not_installed(site: Site, installer: str) -> None:
    base = site.run()["environment"]["name"]
    lock = site.lock(extra=True).replace("helper==1.0 --hash=sha256:", "helper==1.0 --hash=sha256:0000")[:-4]
    msg = site.run(installer=installer, builds={"cpu": {"lock": lock}}, fails=True)["msg"]
    assert "hash" in msg.lower(), msg
    assert site.complete() == [base]
    assert site.current() == base


@pytest.mark.parametrize("installer", INSTALLERS)
def test_a_build_that_fails_in_the_middle_leaves_nothing(site: Site, installer: str) -> None:
    base = site.run()["environment"]["name"]
    lock = [{"name": "more", "text": f"nowhere==1.0 {NO_HASH}"}]
    assert "nowhere" in site.run(installer=installer, extra_locks=lock, fails=True)["msg"]
    assert [one.name for one in site.envs.iterdir() if not one.name.startswith(".")] == [base]
    assert site.current() == base


@pytest.mark.parametrize("text", ["helper==1.0", "helper==1.0 --hash=md5:0"])
def test_a_lock_file_without_digests_makes_no_environment(site: Site, text: str) -> None:
    """The wheel is there, and somebody else could have put it there."""
    assert "hashes" in site.run(extra_locks=[{"name": "more", "text": text}], fails=True)["msg"]
    assert not site.complete()


def test_packages_that_do_not_fit_together_are_refused(site: Site) -> None:
    picky = wheel(site.wheels, "picky", "1.0", "", requires="torch<1")
    lock = [{"name": "more", "text": f"picky==1.0 --hash=sha256:{picky['sha256']}"}]
    assert "picky 1.0 has requirement torch<1" in site.run(installer="pip", extra_locks=lock, fails=True)["msg"]
    assert not site.complete()


def test_a_torch_that_does_not_compute_is_not_used(site: Site) -> None:
    site.torch(total=7)
    assert "sums up to 7.0, not 8" in site.run(fails=True)["msg"]
    assert not site.complete()


def test_a_killed_build_leaves_nothing_in_use_and_the_next_run_cleans_up(site: Site) -> None:
    base = site.run()["environment"]["name"]
    site.torch(slow=True)
    process = site.start(builds={"cpu": {"lock": site.lock()}})
    while not list(site.envs.glob(".*.building")) or len(list(site.envs.glob("cpu-*/lib/*/site-packages/torch"))) < 2:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert site.current() == base
    assert len(list(site.envs.glob("cpu-*"))) == 2
    assert site.run(state="built", check_mode=True)["changed"]
    site.torch()
    assert site.run()["environment"]["name"] == base
    assert [one.name for one in site.envs.iterdir() if not one.name.startswith(".")] == [base]
    assert not list(site.envs.glob(".*.building")) + list(site.envs.glob(".cache-*"))


def test_two_runs_at_once_build_once(site: Site) -> None:
    runs = [site.start() for dummy in range(2)]
    found = [site.result(run) for run in runs]
    assert sorted(one["environment"]["seconds"] is None for one in found) == [False, True]
    assert {one["environment"]["name"] for one in found} == {site.current()}
    assert sorted(one["changed"] for one in found) == [False, True]


@pytest.fixture
def small(tmp_path: Path) -> t.Iterator[t.Callable[[str], Site]]:
    """Sites on file systems that are full soon."""
    mounted: list[Path] = []

    def make(options: str) -> Site:
        path = tmp_path / f"small{len(mounted)}"
        path.mkdir()
        argv = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
        if subprocess.run(argv, capture_output=True, check=False).returncode != 0:
            pytest.skip("needs root, to mount a small file system")
        mounted.append(path)
        return Site(tmp_path, path)

    yield make
    for path in mounted:
        subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk_is_refused_before_anything_is_written(small: t.Callable[[str], Site]) -> None:
    site = small("size=64k")
    big = wheel(site.wheels, "big", "1.0", "x = 1\n" * 100000)
    lock = [{"name": "more", "text": f"big==1.0 --hash=sha256:{big['sha256']}"}]
    msg = site.run(extra_locks=lock, fails=True)["msg"]
    assert "has 0.0 GB free, the environment takes 0.0 GB. Nothing was changed" in msg
    assert list(site.envs.glob("cpu-*")) == []


def test_a_disk_that_fills_up_leaves_nothing(small: t.Callable[[str], Site]) -> None:
    site = small("size=512k,nr_inodes=30")
    assert "pytorch is full)" in site.run(fails=True)["msg"]
    assert [one.name for one in site.envs.iterdir()] == [".lock"]


def test_a_driver_that_is_too_old_is_refused_before_the_build(site: Site) -> None:
    builds = {"cu130": {"lock": site.lock(), "cuda": "13.0"}}
    drivers = [{"host": "c1", "text": "535.104.05, 8.0\n"}]
    for build in ("cu130", "auto"):
        msg = site.run(builds=builds, build=build, drivers=drivers, fails=True)["msg"]
        assert "CUDA 13.0 needs driver 580.65.06 or newer, c1 has driver 535.104.05" in msg
    assert not site.envs.exists()


def test_the_driver_is_read_from_nvidia_smi(cluster: Cluster) -> None:
    said = cluster.tool("nvidia-smi", "--query-gpu=driver_version,compute_cap", "--format=csv,noheader").stdout
    (found,) = driving.drivers([{"host": "c1", "text": said}])
    assert found.capabilities == ["8.0"]
    assert driving.driver_problems("12.6", ["8.0"], found) == []
    assert driving.driver_problems("13.0", ["8.0"], found)


def test_a_torch_for_another_cuda_than_asked_for_is_not_used(site: Site) -> None:
    site.torch(cuda="13.0")
    assert (
        "is built for CUDA 13.0, asked for was CUDA 12.8"
        in site.run(builds={"cu128": {"lock": site.lock(), "cuda": "12.8"}}, fails=True)["msg"]
    )
    drivers = [{"host": "c1", "version": "570.172.08", "capabilities": ["7.0"]}]
    msg = site.run(builds={"mine": {"lock": site.lock(), "cuda": None}}, drivers=drivers, fails=True)["msg"]
    assert "CUDA 13.0 needs driver 580.65.06 or newer, c1 has driver 570.172.08" in msg
    assert "code for GPUs of compute capability 8.0, 9.0, c1 has 7.0" in msg
    assert not site.complete()


def _four(site: Site, **options: t.Any) -> Json:
    for number in range(4):
        found = site.run(builds={f"b{number}": {"lock": site.lock()}}, **({} if number < 3 else options))
    return found


def test_a_number_below_zero_is_no_number_to_keep(site: Site) -> None:
    assert "a number from 0 is needed" in site.run(keep=-1, fails=True)["msg"]


def test_old_environments_go_when_no_job_runs(site: Site) -> None:
    site.squeue("")
    assert _four(site, keep=2)["removed"] == [one for one in _names(site, "b1", "b0") if "b1" in one or "b0" in one][:2]
    assert [one[:2] for one in site.complete()] == ["b2", "b3"]


def _names(site: Site, *builds: str) -> list[str]:
    names = {one["build"]: one["name"] for one in (_named(site, build) for build in builds)}
    return [names[build] for build in builds]


def _named(site: Site, build: str) -> Json:
    return t.cast(Json, site.run(builds={build: {"lock": site.lock()}}, check_mode=True)["environment"])


@pytest.mark.parametrize(
    ("squeue", "why"),
    [
        ("2020-01-01T00:00:00", "a job runs that started before it was left"),
        (None, "nobody can tell whether a job uses it: squeue says"),
        ("N/A", "nobody can tell whether a job uses it: squeue gives the start of a job as N/A"),
    ],
)
def test_old_environments_stay_while_a_job_may_use_them(site: Site, squeue: str | None, why: str) -> None:
    site.squeue(squeue)
    found = _four(site, keep=1)
    assert (found["removed"], len(site.complete())) == ([], 4)
    assert sum(reason.startswith(why) for reason in found["kept"].values()) == 2


def test_an_environment_that_a_process_runs_stays(site: Site) -> None:
    site.squeue("")
    first = site.run(builds={"b0": {"lock": site.lock()}})["environment"]["path"]
    with subprocess.Popen([f"{first}/bin/python", "-c", "import time; time.sleep(600)"]) as process:
        found = _four(site, keep=1)
        process.kill()
    assert [one[:2] for one in found["removed"]] == ["b1"]
    assert found["kept"][Path(first).name] == f"used by process {process.pid}"


def test_the_link_waits_for_a_proof_on_a_compute_node(site: Site) -> None:
    built = site.run(proof="slurm", state="built")
    assert built["needs"] == {"packages": False, "proof": True}
    assert "was not proved on a compute node, so current stays" in site.run(proof="slurm", fails=True)["msg"]
    srun = str(stand_in(site.bin / "srun", "step.sh", asks="--nodes=1"))
    environment = built["environment"]
    proved = site.run(
        "python_environment_proof", path=environment["path"], launch=[srun, "--nodes=1"], want=environment["want"]
    )["proved"]
    assert site.run(proof="slurm", proved=proved)["changed"]
    assert not site.run(proof="slurm")["changed"]
    assert site.current() == environment["name"]


def test_a_proof_that_fails_says_what_the_launcher_said(site: Site) -> None:
    environment = site.run()["environment"]
    refusal = "srun: error: Invalid generic resource (gres) specification\n"
    srun = str(answer(site.bin / "srun", err=refusal, status=1))
    given = {"path": environment["path"], "launch": [srun, "--gres=gpu:1"], "want": environment["want"]}
    assert (
        "--gres=gpu:1: srun: error: Invalid generic" in site.run("python_environment_proof", **given, fails=True)["msg"]
    )
    given = {"path": environment["path"], "want": environment["want"], "gpu": True}
    msg = site.run("python_environment_proof", **given, fails=True)["msg"]
    assert "cannot compute on the GPU of" in msg


def test_the_wheelhouse_reads_markers_for_the_other_machine(site: Site, tmp_path: Path) -> None:
    markers = site.run(check_mode=True)["environment"]["python"]["markers"]
    other = {**markers, "python_version": "3.10", "python_full_version": "3.10.4"}
    older, newer = "python_full_version < '3.11'", "python_full_version >= '3.11'"
    lock = f"helper==1.0 ; {older} --hash=sha256:{site.helper['sha256']}\nnowhere==1.0 ; {newer} {NO_HASH}\n"
    given: Json = {
        "path": str(tmp_path / "house"),
        "name": "mine",
        "lock": lock,
        "interpreter": {"glibc": "2.36", "markers": other},
        "python": sys.executable,
    }
    changed = [
        site.run("python_wheelhouse", **given, check_mode=mode)["changed"] for mode in (True, False, True, False)
    ]
    assert changed == [True, True, False, False]
    (house,) = (tmp_path / "house").glob("mine-py3.10-*")
    assert [one.name for one in house.iterdir()] == ["helper-1.0-py3-none-any.whl"]
    given["lock"] = f"nowhere==1.0 {NO_HASH}\n"
    msg = site.run("python_wheelhouse", **given, fails=True)["msg"]
    assert "brought no packages for CPython 3.10" in msg
    assert "nowhere==1.0" in msg
    given["lock"] = f"helper==1.0 --hash=sha256:{'0' * 64}\n"
    assert "0000" in site.run("python_wheelhouse", **given, fails=True)["msg"]
    assert len(list((tmp_path / "house").glob("mine-*"))) == 1


def test_the_wheelhouse_brings_conda_packages_with_their_digests(site: Site, tmp_path: Path) -> None:
    markers = site.run(check_mode=True)["environment"]["python"]["markers"]
    given: Json = {
        "path": str(tmp_path / "house"),
        "name": "mine",
        "lock": conda_lock(site.wheels, url="file://"),
        "interpreter": {"glibc": "2.36", "markers": markers},
        "python": sys.executable,
    }
    house = Path(site.run("python_wheelhouse", **given)["path"])
    assert [one.name for one in house.iterdir()] == ["torch-1.0-0.conda"]
    (site.wheels / "torch-1.0-0.conda").write_bytes(b"another")
    given["name"] = "again"
    assert "locked is" in site.run("python_wheelhouse", **given, fails=True)["msg"]
