# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A user who makes a directory before its owner does, and prepares in it what others would run or believe."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._trusted import (
    TrustError,
    check,
    distrust,
    make,
    trusted_users,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify import journal
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint import azcopy, program, site
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import CheckpointError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu import test_tools, test_tools_recipe
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.gpu.test_tools_recipe import ToolError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.jobs import ddp
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import job
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.text import SlurmError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import apex, environment, extras
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_recipe import ApexError
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.environment_store import EnvironmentStore
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.versions import EnvironmentRefused
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils import test_trusted
from ansible_collections.hpcai.gpu_cluster.tests.unit.plugins.module_utils.test_trusted import (
    ROOT,
    as_mallory,
    owner_and_mode,
)

pytestmark = test_trusted.pytestmark
shared = test_trusted.shared
Json = t.Dict[str, t.Any]


def as_user(uid: int, act: t.Callable[[], object]) -> None:
    """Do something with the rights of a user; what it raises fails the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_trusted, "MALLORY", uid)
        as_mallory(act)


@pytest.mark.skipif("daemon" not in {entry.pw_name for entry in pwd.getpwall()}, reason="no user with a private group")
def test_a_user_with_a_private_group_keeps_a_store_in_the_own_home(
    shared: Path,
) -> None:
    """Ubuntu and RHEL give users a umask of 0002 and a group of their own."""
    daemon = pwd.getpwnam("daemon")
    (shared / "home/work").mkdir(parents=True)
    for path in (shared / "home", shared / "home/work"):
        shutil.chown(path, daemon.pw_uid, daemon.pw_gid)
        path.chmod(0o775)

    def work() -> None:
        make(f"{shared}/home/work/store", trusted_users())
        check(f"{shared}/home/work", trusted_users())

    as_user(daemon.pw_uid, work)
    check(f"{shared}/home/work", trusted_users(daemon.pw_uid))
    os.chown(shared / "home", daemon.pw_uid, 100)
    with pytest.raises(AssertionError):
        as_user(daemon.pw_uid, work)


def test_a_store_is_made_with_its_parents_and_no_other_is_taken(shared: Path) -> None:
    store = shared / "a/store"
    check(str(store), ROOT)
    umask = os.umask(0o077)
    try:
        make(str(store), ROOT)
    finally:
        os.umask(umask)
    assert owner_and_mode(shared / "a") == owner_and_mode(store) == (0, 0, "755")
    store.chmod(0o2750)
    make(str(store), ROOT)
    assert owner_and_mode(store) == (0, 0, "2750")
    for mode, says in ((0o777, "everybody"), (0o1777, "everybody"), (0o770, "group 100")):
        os.chown(store, 0, 100)
        store.chmod(mode)
        for act in (make, check):
            with pytest.raises(TrustError, match=f"store can be written by {says}"):
                act(str(store), ROOT)
    as_mallory((shared / "theirs").mkdir)
    for act in (make, check):
        with pytest.raises(TrustError, match="theirs belongs to"):
            act(str(shared / "theirs"), ROOT)


def test_a_link_to_a_file_counts_as_the_file_when_a_trusted_user_made_it(shared: Path) -> None:
    (shared / "program").write_text("")
    (shared / "ours").symlink_to("program")
    assert distrust(f"{shared}/ours", ROOT) == ""
    as_mallory(lambda: (shared / "theirs").symlink_to("program"))
    assert "is a symbolic link of" in distrust(f"{shared}/theirs", ROOT)
    as_mallory((shared / "forged").touch)
    (shared / "to_forged").symlink_to("forged")
    assert "forged belongs to" in distrust(f"{shared}/to_forged", ROOT)


# python_environment

LOCK = f"torch==2.14.1 --hash=sha256:{'0' * 64}\n"
FACTS = {"torch": "2.14.1", "cuda": None, "imports": [], "archs": [], "sum": 8.0, "gpus": 0}


def worker(path: Path, check_mode: bool = False) -> environment.EnvironmentWorker:
    options = {name: option.get("default") for name, option in environment.SPEC.items()}
    options.update(path=str(path), builds={"cpu": {"lock": LOCK, "cuda": ""}})
    return environment.EnvironmentWorker(options, check_mode)


def prepare(path: Path, name: str) -> None:
    """Make a directory that looks like a complete, proved environment in use."""
    target = path / "envs" / name
    (target / "bin").mkdir(parents=True)
    (target / "bin/python").write_text("#!/bin/sh\nid >/tmp/owned\n")
    (target / "manifest.json").write_text(json.dumps({"inputs": {}, "facts": FACTS, "made": 1.0}))
    (path / f"envs/.{name}.json").write_text(json.dumps({"proofs": {"local": FACTS, "slurm": FACTS}}))
    (path / "current").symlink_to(f"envs/{name}")


def name_of(path: Path) -> str:
    """Return the name that the environment would have, which anybody can compute."""
    return worker(path).name


def test_a_prepared_environment_is_not_used(shared: Path) -> None:
    name = name_of(shared / "nowhere")
    as_mallory(lambda: prepare(shared / "pytorch", name))
    for check_mode in (True, False):
        with pytest.raises(EnvironmentRefused, match=rf"{shared}/pytorch belongs to \w+ \(uid 65534\)"):
            worker(shared / "pytorch", check_mode).perform()
    # An administrator takes the directory, but not what is below it.
    for taken in (shared / "pytorch", shared / "pytorch/envs"):
        os.chown(taken, 0, 0)
    with pytest.raises(EnvironmentRefused, match=rf"envs/{name} belongs to \w+ \(uid 65534\)"):
        worker(shared / "pytorch").perform()


def test_a_users_link_to_an_environment_is_no_link_of_ours(shared: Path) -> None:
    (shared / "pytorch/envs").mkdir(parents=True)
    (shared / "pytorch").chmod(0o1777)
    as_mallory(lambda: (shared / "pytorch/current").symlink_to("envs/cpu-1"))
    (shared / "pytorch/other").symlink_to("/tmp/envs/cpu-1")
    (shared / "pytorch/ours").symlink_to("envs/cpu-1")
    store = EnvironmentStore(str(shared / "pytorch"))
    assert [store.goal(link) for link in ("current", "other", "ours", "none")] == ["", "", "cpu-1", ""]


def test_the_directory_of_environments_is_nobody_elses(shared: Path) -> None:
    (shared / "pytorch/envs").mkdir(parents=True)
    (shared / "pytorch/envs").chmod(0o1777)
    with pytest.raises(EnvironmentRefused, match="envs can be written by everybody"):
        worker(shared / "pytorch").perform()


def test_a_user_makes_environments_in_the_own_home(shared: Path) -> None:
    home = shared / "home"
    home.mkdir()
    shutil.chown(home, test_trusted.MALLORY, test_trusted.MALLORY)

    def make() -> None:
        os.umask(0o077)
        store = EnvironmentStore(str(home / "work/pytorch"))
        store.refuse_others()
        store.make()
        store.refuse_others()
        assert store.manifest("cpu-1") == {}

    as_mallory(make)
    assert (home / "work/pytorch/envs").stat().st_mode & 0o777 == 0o755


# checkpoint_upload


@pytest.mark.parametrize("squat", ["directory", "file", "link"])
def test_a_user_blocks_nobodys_uploads(shared: Path, squat: str) -> None:
    base, alice = shared / "state", 4711
    base.mkdir()
    base.chmod(0o1777)
    usual = base / f"user-{alice}"
    as_mallory(
        {"directory": usual.mkdir, "file": usual.touch, "link": lambda: usual.symlink_to(shared)}[squat],
    )
    as_mallory((base / f"user-{alice}-0").mkdir)
    result = shared / "result"

    def upload() -> None:
        home, warning = site.private(base, alice, trusted_users())
        assert site.private(base, alice, trusted_users()) == (home, warning)
        assert site.own(home, base, alice) == home
        with pytest.raises(CheckpointError, match="not a directory of uid 4711 alone"):
            site.own(usual, base, alice)
        os.write(handle, f"{home}\n{warning}".encode())

    handle = os.open(result, os.O_WRONLY | os.O_CREAT)
    as_user(alice, upload)
    os.close(handle)
    home, warning = result.read_text().split("\n")
    assert Path(home).stat().st_uid == alice and Path(home).stat().st_mode & 0o777 == 0o700
    assert warning.startswith(f"{usual} belongs to uid 65534, so {home} is used instead")


def test_states_are_kept_nowhere_where_others_could_exchange_them(shared: Path) -> None:
    as_mallory((shared / "state").mkdir)
    with pytest.raises(CheckpointError, match=r"state belongs to \w+ \(uid 65534\)"):
        site.private(shared / "state", 0, trusted_users())
    assert not list((shared / "state").iterdir())


def test_settings_that_a_user_put_there_are_not_read(shared: Path) -> None:
    settings = {"azcopy": "/bin/true", "destination": "https://a.blob.core.windows.net/c", "ingress_gbps": 1}
    text = json.dumps({**settings, "state_dir": str(shared / "state")})
    as_mallory(lambda: (shared / "config.json").write_text(text))
    with pytest.raises(CheckpointError, match=r"config.json belongs to \w+ \(uid 65534\)"):
        program.read_settings(str(shared / "config.json"))
    as_mallory((shared / "azcopy").touch)
    (shared / "own.json").write_text(text.replace("/bin/true", str(shared / "azcopy")))
    arguments = ["part", str(shared), "x", f"--config={shared}/own.json", "--index=0", "--count=1"]
    with pytest.raises(CheckpointError, match=r"cannot be started: .*azcopy belongs to \w+ \(uid 65534\)"):
        program.request(program.arguments(arguments))
    (shared / "own.json").write_text(text)
    as_user(4711, lambda: program.read_settings(str(shared / "own.json")))


def test_an_azcopy_that_a_user_put_there_is_not_installed(shared: Path) -> None:
    pin = azcopy.AzcopyPin(shared / "tools", "10.1.0", "0" * 64)

    def prepare_azcopy() -> None:
        pin.home.mkdir(parents=True)
        (pin.home / "azcopy").write_text("#!/bin/sh\n")
        pin.link.parent.mkdir()
        pin.link.symlink_to(pin.target)

    as_mallory(prepare_azcopy)
    with pytest.raises(CheckpointError, match=r"tools belongs to \w+ \(uid 65534\)"):
        azcopy.state(pin)
    for taken in (pin.directory, pin.home.parent, pin.link.parent):
        os.chown(taken, 0, 0)
    with pytest.raises(CheckpointError, match=rf"{pin.home} belongs to \w+ \(uid 65534\)"):
        azcopy.state(pin)
    shutil.rmtree(pin.home)
    pin.home.mkdir()
    (pin.home / "azcopy").touch()
    assert azcopy.state(pin) == (True, False), "the link is the user's"


# apex_wheel, source_wheel, gpu_test_tools


def test_a_prepared_wheel_of_apex_is_not_used(shared: Path) -> None:
    inputs = {"torch": "2.14.1"}
    target = apex.folder(str(shared / "wheels"), inputs)

    def prepare_wheel(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "apex.whl").write_text("theirs")
        (folder / "manifest.json").write_text(json.dumps({"inputs": inputs, "wheel": "apex.whl"}))

    as_mallory(lambda: prepare_wheel(target))
    for act in (lambda: apex.find(str(target.parent), inputs), lambda: apex.prepare(str(target.parent))):
        with pytest.raises(ApexError, match=r"wheels belongs to \w+ \(uid 65534\)"):
            act()
    os.chown(target.parent, 0, 0)
    with pytest.raises(ApexError, match=rf"{target} belongs to \w+ \(uid 65534\)"):
        apex.find(str(target.parent), inputs)
    target.rename(target.with_name("apex-000000000000"))
    assert apex.find(str(target.parent), inputs) == {}
    prepare_wheel(target)
    assert apex.find(str(target.parent), inputs)["path"] == str(target / "apex.whl")


def test_a_prepared_wheel_of_a_source_is_not_used(shared: Path) -> None:
    folder = shared / "extras/deepspeed-000000000000"

    def prepare_wheel() -> None:
        folder.mkdir(parents=True)
        (folder / "x.whl").write_text("theirs")
        (folder / "manifest.json").write_text(json.dumps({"file": "x.whl", "sha256": ""}))

    as_mallory(prepare_wheel)
    with pytest.raises(extras.ExtrasError, match=r"extras belongs to \w+ \(uid 65534\)"):
        extras.stored_manifest(folder)
    os.chown(folder.parent, 0, 0)
    with pytest.raises(extras.ExtrasError, match=rf"{folder} belongs to \w+ \(uid 65534\)"):
        extras.stored_manifest(folder)
    for path in (folder, folder / "manifest.json"):
        os.chown(path, 0, 0)
    with pytest.raises(extras.ExtrasError, match=r"x.whl belongs to \w+ \(uid 65534\)"):
        extras.stored_manifest(folder)
    os.chown(folder / "x.whl", 0, 0)
    assert extras.stored_manifest(folder)


def test_a_prepared_test_tool_is_not_run(shared: Path) -> None:
    prefix, inputs = str(shared / "tools"), {"tool": "nvbandwidth", "source": "commit:1"}
    target = Path(test_tools.folder(prefix, inputs))

    def prepare_tool() -> None:
        target.mkdir(parents=True)
        (target / "manifest.json").write_text(json.dumps({"inputs": inputs}))

    as_mallory(prepare_tool)
    with pytest.raises(ToolError, match=r"tools belongs to \w+ \(uid 65534\)"):
        test_tools.refuse_others(prefix)
    for taken in (shared / "tools", shared / "tools/versions"):
        os.chown(taken, 0, 0)
    test_tools.refuse_others(prefix)
    assert test_tools.built(prefix, inputs) == ""
    with pytest.raises(ToolError, match=rf"{target} is in the way .* belongs to \w+ \(uid 65534\)"):
        test_tools.stage(test_tools_recipe.TOOLS["nvbandwidth"], str(shared), str(target))
    for taken in (target, target / "manifest.json"):
        os.chown(taken, 0, 0)
    assert test_tools.built(prefix, inputs) == str(target)


# slurm_job, ddp_run, certification


def test_a_forged_record_of_a_job_is_not_believed(shared: Path) -> None:
    fields: Json = dict.fromkeys(job.JobSpec._fields)
    fields.update(record=str(shared / "training/job.json"), args=(), options={}, environment={})
    spec = job.JobSpec(**fields)
    assert job._read(spec) == ("", None)
    done = job.JobState(7, "train", "COMPLETED")
    forged = json.dumps({"schema": 1, "digest": "x", "job": done.as_dict()})
    as_mallory((shared / "training").mkdir)
    with pytest.raises(SlurmError, match=r"nothing was submitted: .*training belongs to \w+ \(uid 65534\)"):
        job._read(spec)
    as_mallory(lambda: (shared / "training/job.json").write_text(forged))
    os.chown(shared / "training", 0, 0)
    with pytest.raises(SlurmError, match=r"job.json belongs to \w+ \(uid 65534\)"):
        job._read(spec)


def test_root_starts_no_training_that_another_than_its_user_wrote(shared: Path) -> None:
    run = shared / "training/run-1"
    as_mallory(lambda: run.mkdir(parents=True))
    as_mallory(lambda: (run / "spec.json").write_text(json.dumps({"python": "/bin/sh", "timeout": 60})))
    started: list[t.Any] = []

    class Module:
        params: t.ClassVar = {"path": str(run.parent), "run": "run-1", "node": "n1", "user": "daemon"}
        check_mode = False

        def get_bin_path(self, name: str, required: bool) -> str:
            return name

        def run_command(self, argv: list[str], check_rc: bool = False) -> tuple[int, str, str]:
            started.append(argv)
            return 3, "", ""

    with pytest.raises(ddp.DdpError, match=r"training belongs to \w+ \(uid 65534\)"):
        ddp.start_unit(Module(), "unit")
    assert [argv[0] for argv in started] == ["systemctl"]
    for path in (run.parent, run, run / "spec.json"):
        os.chown(path, pwd.getpwnam("daemon").pw_uid, 0)
    assert ddp.start_unit(Module(), "unit")
    with pytest.raises(ddp.DdpError, match="training belongs to daemon"):
        ddp.refuse_others(run.parent)


def test_runs_and_an_agent_that_a_user_put_there_certify_nothing(shared: Path) -> None:
    base, agent = shared / "certification", shared / "agent.pyz"
    agent.write_text("ours")

    def find_a_run() -> None:
        with journal.alone(base, agent, "", check_mode=False):
            pass

    as_mallory(base.mkdir)
    with pytest.raises(journal.JournalError, match=r"certification belongs to \w+ \(uid 65534\)"):
        find_a_run()
    request = json.dumps({"schema": 1, "run": "r1", "fingerprint": "f"})
    as_mallory((base / "r1").mkdir)
    as_mallory(lambda: (base / "r1/request.json").write_text(request))
    as_mallory(lambda: (base / "r1/certificate.json").write_text("{}"))
    os.chown(base, 0, 0)
    find_a_run()
    (base / "r1/certificate.json").unlink()
    assert journal.unfinished(base, "f") is None
    with pytest.raises(journal.JournalError, match=r"r1 belongs to \w+ \(uid 65534\)"):
        journal.Journal(base / "r1").create()
    as_mallory(lambda: (base / "r1/certificate.json").write_text("{}"))
    assert journal.earlier(base) == [] and not journal._ours(base / "r1")
    agent.unlink()
    as_mallory(lambda: agent.write_text("theirs"))
    with pytest.raises(journal.JournalError, match=r"agent.pyz belongs to \w+ \(uid 65534\)"):
        find_a_run()
