# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs that roles training_job and ddp_launch send to the nodes; none of this needs PyTorch."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import types
import typing as t
from pathlib import Path

import pytest
from patience import patience
from stand_in import stand_in

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import environment as environments

ROLES = Path(__file__).resolve().parents[3] / "roles"
NODE = ROLES / "ddp_launch/files/ddp_node.py"
RANK = ROLES / "training_job/files/rank.sh"
EXTENSIONS = ROLES / "training_job/files/torch_extensions.py"
INTERFACE = ROLES / "training_job/files/network_interface.py"


def load(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


checkpoints = load(ROLES / "training_job/files/checkpoints.py")
network_interface = load(INTERFACE)
ddp_node = load(NODE)
torch_extensions = load(EXTENSIONS)
stalls = load(ROLES / "training_job/files/stalls.py")
staging = load(ROLES / "training_job/files/staging.py")


def save(folder: Path, *steps: int, kept: int = 2) -> t.Any:
    found = checkpoints.Checkpoints(folder, kept)
    for step in steps:
        found.save(step, lambda file, step=step: file.write(b"x" * step))
    return found


def test_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    found = save(tmp_path, 10, 20, 30)
    assert found.newest() == (30, tmp_path / "step-00000030.pt")
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == ["step-00000020.pt", "step-00000030.pt"]


@pytest.mark.parametrize("content", [b"", b"x" * 29, b"y" * 30, None])
def test_a_spoilt_checkpoint_is_passed_over(tmp_path: Path, content: bytes | None, capsys: t.Any) -> None:
    found = save(tmp_path, 20, 30)
    newest = tmp_path / "step-00000030.pt"
    newest.unlink() if content is None else newest.write_bytes(content)
    assert found.newest() == (20, tmp_path / "step-00000020.pt")
    assert "step-00000030 is passed over" in capsys.readouterr().err


def test_spoilt_checkpoints_do_not_push_out_sound_ones(tmp_path: Path) -> None:
    save(tmp_path, 20, 30)
    for name in ("step-00000020.pt", "step-00000030.pt"):
        (tmp_path / name).unlink()
    assert save(tmp_path, 10).newest() == (10, tmp_path / "step-00000010.pt")
    assert len(list(tmp_path.iterdir())) == 2


def test_one_that_was_never_finished_does_not_count(tmp_path: Path) -> None:
    found = save(tmp_path, 20)
    (tmp_path / "step-00000030.pt").write_bytes(b"x" * 30)
    (tmp_path / "step-00000040.json").write_text("{")
    assert found.newest() == (20, tmp_path / "step-00000020.pt")
    assert checkpoints.Checkpoints(tmp_path / "empty").newest() is None


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    checkpoints.replace(path, lambda file: file.write(b"old"))

    def crash(file: t.BinaryIO) -> None:
        file.write(b"ne")
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        checkpoints.replace(path, crash)
    assert path.read_bytes() == b"old"


def test_the_journal_tells_what_a_crash_has_cost(tmp_path: Path) -> None:
    journal = checkpoints.Journal(tmp_path)
    assert journal.read() == []
    journal.add("start", step=0, lost=0)
    for step in range(1, 26):
        journal.add("step", step=step, loss=1.0)
    with (tmp_path / checkpoints.JOURNAL).open("a") as file:
        file.write('{"event": "step", "st')  # killed in the middle of a line
    lost = checkpoints.done(journal.read()) - 20
    journal.add("start", step=20, lost=lost)
    assert checkpoints.starts(journal.read()) == {"restarts": 1, "resumed_from": 20, "lost_steps": 5}
    assert checkpoints.starts([]) == {"restarts": 0, "resumed_from": None, "lost_steps": 0}


@pytest.mark.parametrize(
    "kind, variables",
    [
        ("srun", {"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NTASKS": "4"}),
        (
            "mpirun",
            {
                "OMPI_COMM_WORLD_RANK": "3",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "4",
                "SLURM_PROCID": "0",
            },
        ),
        ("torchrun", {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "SLURM_PROCID": "0"}),
    ],
)
def test_a_rank_knows_its_number_and_place(tmp_path: Path, kind: str, variables: dict[str, str]) -> None:
    cpu = min(os.sched_getaffinity(0))
    place = tmp_path / "extensions"
    masks = {
        "TORCH_EXTENSIONS_DIR": str(place),
        "HPCAI_CPU_MASKS": f"0x1 {hex(1 << cpu)}",
        "HPCAI_RANK_OUTPUT": str(tmp_path),
    }
    code = "import os; print(*(os.environ[n] for n in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE')), *os.sched_getaffinity(0))"
    argv = ["bash", str(RANK), kind, sys.executable, "-c", code]
    said = subprocess.run(
        argv, env={"PATH": os.environ["PATH"], **masks, **variables}, capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stdout) == (0, f"3 1 4 {cpu}\n"), said.stderr
    assert (tmp_path / "rank-3.txt").read_text() == said.stdout


def test_torchrun_is_not_hit_by_the_signal_that_its_ranks_get(tmp_path: Path) -> None:
    """The agent here is a shell with one child, as torchrun is with its ranks."""
    child = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: (os.write(1, b'told\\n'), os._exit(0)))\n"
        "os.write(1, b'ready\\n')\ntime.sleep(30)\n"
    )
    agent = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {child!r}]) + 7)"
    argv = ["bash", str(RANK), "agent", sys.executable, "-c", agent]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGUSR1)
        assert running.stdout.readline() == "told\n"
        assert running.wait(patience(20)) == 7


@pytest.mark.parametrize("node", [0, 1, 10])
def test_the_rendezvous_listens_on_the_first_node_whatever_nodes_call_themselves(node: int) -> None:
    words = ["printf", "%s\n", "a b", "--rdzv-conf=is_host=first", "script", "--nodes=*"]
    environment = {**os.environ, "SLURM_NODEID": str(node)}
    said = subprocess.run(
        ["bash", str(RANK), "agent", *words], env=environment, capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines() == ["a b", f"--rdzv-conf=is_host={int(node == 0)}", "script", "--nodes=*"]


def test_an_agent_that_died_of_the_signal_is_not_waited_for_again() -> None:
    argv = ["bash", str(RANK), "agent", "bash", "-c", "kill -TERM $$"]
    assert subprocess.run(argv, timeout=patience(60), check=False).returncode == 143


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """The directory of an environment's extensions, with one that was compiled."""
    folder = torch_extensions.directory([str(tmp_path)])
    (folder / "fused_adam").mkdir()
    return t.cast(Path, folder)


def test_a_lock_of_a_compile_that_was_cut_off_is_removed(compiled: Path) -> None:
    lock = compiled / "fused_adam/lock"
    # As torch/utils/file_baton.py takes it.
    take = (
        f"import os, time; os.open({str(lock)!r}, os.O_CREAT | os.O_EXCL); print('taken', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", take], stdout=subprocess.PIPE) as compiling:
        assert compiling.stdout
        assert compiling.stdout.readline() == b"taken\n"
        assert torch_extensions.release(compiled, 0) == []
        assert lock.exists()
        compiling.kill()
    assert torch_extensions.release(compiled, 0) == [lock]
    assert not lock.exists()


def test_a_lock_that_is_made_meanwhile_stays(compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = compiled / "fused_adam/lock"
    lock.touch()

    def exchanged(dummy: float) -> None:
        lock.rename(lock.with_name("old"))
        lock.touch()

    monkeypatch.setattr(torch_extensions.time, "sleep", exchanged)
    assert torch_extensions.release(compiled) == []
    assert lock.exists()


def test_extensions_are_kept_where_nobody_else_can_put_any(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for place in (first, second):
        place.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (first / f"hpcai-torch-extensions-{os.geteuid()}").symlink_to(elsewhere)
    folder = torch_extensions.directory([str(first), str(second)])
    assert folder.parent.parent == second
    assert list(elsewhere.iterdir()) == []
    folder.parent.chmod(0o770)
    with pytest.raises(OSError, match="not a directory of this user's alone"):
        torch_extensions.directory([str(second)])
    done = subprocess.run([sys.executable, EXTENSIONS, first, second], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert "PyTorch keeps extensions where it does by itself" in done.stderr


def test_a_directory_that_the_user_chose_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine/extension").mkdir(parents=True)
    (tmp_path / "mine/extension/lock").touch()
    variables = {**os.environ, "TORCH_EXTENSIONS_DIR": str(tmp_path / "mine")}
    done = subprocess.run([sys.executable, EXTENSIONS], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path}/mine\n"
    assert (tmp_path / "mine/extension/lock").exists()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data set on the shared directory, and a scratch beside it that everybody may write to."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch").chmod(0o1777)
    folder = tmp_path / "shared/set"
    (folder / "part").mkdir(parents=True)
    (folder / "part/first").write_text("a" * 100)
    (folder / "part/second").write_text("b" * 100)
    (folder / "newest").symlink_to("part/second")
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    return folder


def bring(data: Path, *more: Path) -> Path:
    """Stage as one start of a training does, that has ended then; return the directory that its ranks are told."""
    found, held = staging.staged(data.parents[1] / "scratch", [str(data), *map(str, more)])
    os.close(held)
    if found.problems:
        raise OSError(found.problems[0])
    return t.cast(Path, found.data)


def inodes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_ino for path in folder.rglob("*")}


def test_data_is_copied_to_scratch_once_and_again_when_it_has_changed(data: Path) -> None:
    first = bring(data)
    assert (first / "set/newest").read_text() == "b" * 100
    assert os.access(first / "set/run", os.X_OK)
    assert (first / "set").resolve().is_relative_to(data.parents[1] / "scratch")
    before = inodes((first / "set").resolve())
    assert bring(data) == first
    assert inodes((first / "set").resolve()) == before
    (data / "part/second").write_text("c" * 100)
    assert (bring(data) / "set/newest").read_text() == "c" * 100
    # Another job may read it still.
    assert (first / "set/newest").read_text() == "b" * 100


def test_a_copy_that_was_cut_off_goes_on(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = staging.shutil.copyfile

    def killed(source: Path, target: Path) -> None:
        if source.name == "second":
            target.write_text("b" * 50)
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(staging, "THREADS", 1)
    monkeypatch.setattr(staging.shutil, "copyfile", killed)
    with pytest.raises(KeyboardInterrupt):
        bring(data)
    monkeypatch.setattr(staging.shutil, "copyfile", real)
    (left,) = (data.parents[1] / "scratch").rglob("first")
    inode = left.stat().st_ino
    found = bring(data)
    assert (found / "set/part/second").read_text() == "b" * 100
    assert (found / "set/part/first").stat().st_ino == inode


@pytest.mark.parametrize("spoilt", ["content", "more", "less"])
def test_a_copy_that_the_user_has_changed_is_mended(data: Path, spoilt: str) -> None:
    copy = (bring(data) / "set").resolve()
    path = copy / "part/first"
    path.chmod(0o600)
    if spoilt == "content":
        path.write_text("x" * 100)
    elif spoilt == "more":
        (copy / "part/third").touch()
    else:
        path.unlink()
    found = bring(data) / "set"
    assert {path.name for path in (found / "part").iterdir()} == {"first", "second"}
    assert (found / "part/first").read_text() == "a" * 100


def test_data_that_changes_meanwhile_is_not_taken(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = staging.copy

    def changed(source: Path, target: Path, *more: t.Any) -> None:
        source.write_text("more than before")
        real(source, target, *more)

    monkeypatch.setattr(staging, "copy", changed)
    with pytest.raises(OSError, match="has changed while it was copied"):
        bring(data)


@pytest.mark.parametrize("taken", ["link", "group", "scratch"])
def test_nobody_else_can_put_data_where_a_training_reads_it(data: Path, taken: str) -> None:
    scratch = data.parents[1] / "scratch"
    root = scratch / f"hpcai-staged-{os.geteuid()}"
    elsewhere = data.parents[1] / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if taken == "link":
        root.symlink_to(elsewhere)
    elif taken == "group":
        root.mkdir()
        root.chmod(0o770)
    else:
        scratch.chmod(0o777)  # anybody could move a directory away and put another in its place
    with pytest.raises(OSError, match=r"directory of this user's alone|others could exchange"):
        bring(data)
    assert list(elsewhere.iterdir()) == []


def test_what_was_not_used_for_longest_makes_room_unless_a_job_may_read_it(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [data.with_name(name) for name in ("old", "new")]
    for number, path in enumerate(others):
        path.write_text("x" * 100)
        os.utime((bring(path) / path.name).resolve().parent, (number, number))

    def room(path: Path) -> t.Any:
        used = sum(one.lstat().st_size for one in path.rglob("*") if one.is_file() and not one.is_symlink())
        return types.SimpleNamespace(f_bavail=staging.RESERVE + 320 - used, f_frsize=1)

    monkeypatch.setattr(staging.os, "statvfs", room)
    scratch = data.parents[1] / "scratch"
    dummy, held = staging.staged(scratch, [str(others[1])])
    with pytest.raises(OSError, match="are needed in"):
        bring(data)
    os.close(held)
    bring(data)
    assert list(scratch.rglob("old")) == []
    assert next(scratch.rglob("new")).read_text() == "x" * 100


def test_ranks_are_told_where_their_data_is_and_get_signals_as_before(data: Path) -> None:
    child = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: (os.write(1, b'told\\n'), os._exit(0)))\n"
        "os.write(1, (os.environ['HPCAI_DATA'] + '\\n').encode())\ntime.sleep(30)\n"
    )
    agent = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {child!r}]) + 7)"
    scratch = data.parents[1] / "scratch"
    variables = {
        "PATH": os.environ["PATH"],
        "HPCAI_DATA": "/shared/links",
        "HPCAI_STAGE": json.dumps({"scratch": str(scratch), "data": [str(data)]}),
    }
    argv = ["bash", str(RANK), "agent", sys.executable, "-c", agent]
    with subprocess.Popen(argv, env=variables, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        told = Path(running.stdout.readline().strip())
        assert (told / "set/newest").read_text() == "b" * 100
        # As long as it runs, nothing is removed.
        root = os.open(told.parent, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
        running.send_signal(signal.SIGUSR1)
        assert running.stdout.readline() == "told\n"
        assert running.wait(patience(20)) == 7
        fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(root)
    scratch.rename(scratch.with_name("gone"))
    argv = ["bash", str(RANK), "torchrun", sys.executable, "-c", "import os; print(os.environ['HPCAI_DATA'])"]
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == "/shared/links\n"
    assert "reads /shared/links itself: " in done.stderr


def pack(made: Path, number: int) -> None:
    for name in (staging.ARCHIVE, staging.MANIFEST):
        (made / name).unlink(missing_ok=True)
    environments.pack(made, 60)
    (made / staging.MANIFEST).write_text(json.dumps({"made": number}))


@pytest.fixture
def environment(data: Path) -> Path:
    """An environment as role pytorch leaves it, and the link to it; return the interpreter by the link."""
    made = data.parents[1] / "shared/pytorch/envs/cpu-py3-0123456789ab"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    (package,) = made.glob("lib/python3*/site-packages")
    (package / "own.py").write_text("where = __file__\n")
    pack(made, 1)
    (made.parents[1] / "current").symlink_to("envs/cpu-py3-0123456789ab")
    return made.parents[1] / "current/bin/python"


def start_from(environment: Path, *sources: Path) -> tuple[t.Any, list[str]]:
    found, held = staging.staged(environment.parents[4] / "scratch", list(map(str, sources)), str(environment))
    os.close(held)
    return found.python, list(found.problems)


def test_an_environment_is_copied_to_scratch_once_and_again_when_it_is_another(environment: Path) -> None:
    first, problems = start_from(environment)
    assert problems == []
    ran = subprocess.run([first, "-c", "import own; print(own.where)"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(str(environment.parents[4] / "scratch"))
    before = inodes(first.parents[1])
    assert start_from(environment) == (first, [])
    assert inodes(first.parents[1]) == before
    pack(environment.parents[1].resolve(), 2)
    second, problems = start_from(environment)
    assert problems == []
    assert second != first
    assert first.exists()  # another job may run it


@pytest.mark.parametrize("lacking", [staging.MANIFEST, staging.ARCHIVE])
def test_an_environment_that_is_not_complete_or_not_packed_stays_where_it_is(environment: Path, lacking: str) -> None:
    (environment.parents[1] / lacking).unlink()
    assert start_from(environment) == (None, [])
    assert [path.name for path in (environment.parents[4] / "scratch").glob("*/*") if path.name != ".lock"] == []


def test_a_copy_of_an_environment_that_was_cut_off_is_begun_anew(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = staging.entries

    def killed(target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(staging, "entries", killed)
    with pytest.raises(KeyboardInterrupt):
        start_from(environment)
    (left,) = (environment.parents[4] / "scratch").rglob("own.py")
    left.write_bytes(b"\0" * left.stat().st_size)
    monkeypatch.setattr(staging, "entries", real)
    found, problems = start_from(environment)
    assert problems == []
    assert next(found.parents[1].rglob("own.py")).read_text() == "where = __file__\n"


def test_what_was_unpacked_before_the_machine_started_is_unpacked_anew(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, dummy = start_from(environment)
    own = next(first.parents[1].rglob("own.py"))
    # As after a machine that lost its power: the size of a file is there, its content is not.
    own.write_bytes(b"\0" * own.stat().st_size)
    monkeypatch.setattr(staging, "boot", lambda: "another")
    assert start_from(environment) == (first, [])
    assert own.read_text() == "where = __file__\n"


@pytest.mark.parametrize("spoilt", ["less", "more"])
def test_a_copy_of_an_environment_that_was_tidied_up_is_made_anew_unless_a_job_runs_it(
    environment: Path, spoilt: str
) -> None:
    scratch = environment.parents[4] / "scratch"
    first, held = staging.staged(scratch, [], str(environment))
    own = next(first.python.parents[1].rglob("own.py"))
    # What Python has compiled is no change.
    subprocess.run([first.python, "-c", "import own"], check=True)
    assert start_from(environment) == (first.python, [])
    own.unlink() if spoilt == "less" else own.with_name("more.py").touch()
    python, problems = start_from(environment)
    assert python is None
    assert "another job may run it" in problems[0]
    os.close(held)
    assert start_from(environment) == (first.python, [])
    assert own.read_text() == "where = __file__\n"
    assert not own.with_name("more.py").exists()


@pytest.mark.parametrize("against", ["noexec", "room", "link"])
def test_a_node_that_cannot_have_the_environment_starts_the_shared_one_and_says_why(
    environment: Path, data: Path, against: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noexec, free = os.ST_NOEXEC if against == "noexec" else 0, 1 << 20
    room = types.SimpleNamespace(f_flag=noexec, f_bavail=staging.RESERVE + free, f_frsize=1)
    monkeypatch.setattr(staging.os, "statvfs", lambda path: room)
    if against == "room":
        with (environment.parents[1] / staging.ARCHIVE).open("ab") as file:
            file.write(b"\0" * free)
    elif against == "link":
        (start_from(environment)[0].parents[1] / "x").touch()
        (place,) = (path.parent for path in (environment.parents[4] / "scratch").rglob(staging.COMPLETE))
        place.rename(place.with_name("elsewhere"))
        place.symlink_to("elsewhere")
    found, held = staging.staged(environment.parents[4] / "scratch", [str(data)], str(environment))
    os.close(held)
    assert found.python is None
    (problem,) = found.problems
    assert problem.startswith(f"starts {environment} itself: ")
    assert {"noexec": "noexec", "room": "MiB are needed in", "link": "this user's alone"}[against] in problem
    # Data for which there is room is there nevertheless.
    assert (found.data / "set/newest").read_text() == "b" * 100


def test_whatever_starts_ranks_runs_the_interpreter_on_scratch(environment: Path) -> None:
    scratch = environment.parents[4] / "scratch"
    program = f"import subprocess, sys; subprocess.run(['bash', {str(RANK)!r}, 'torchrun', *sys.argv[1:]], check=True)"
    rank = "import own, sys; print(own.where, sys.prefix, flush=True)"
    variables = {
        "PATH": os.environ["PATH"],
        "HPCAI_STAGE": json.dumps({"scratch": str(scratch), "data": [], "python": str(environment)}),
    }
    argv = ["bash", str(RANK), "agent", str(environment), "-c", program, str(environment), "-c", rank]
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, check=True)
    where, prefix = done.stdout.split()
    assert where.startswith(f"{prefix}/lib/")
    assert prefix.startswith(f"{scratch}/hpcai-staged-{os.geteuid()}/")
    assert done.stderr == ""


SPEC = {
    "run": "run-1",
    "nodes": ["c1", "c2"],
    "addresses": {"c1": "10.0.0.1", "c2": "10.0.0.2"},
    "endpoint": "10.0.0.1:29400",
    "processes": 2,
    "python": sys.executable,
    "script": "{run}/train.py",
    "arguments": ["--out", "{run}/out.json"],
    "environment": {},
    "chdir": "/",
    "timeout": 60,
}


def test_the_torchrun_of_a_node() -> None:
    argv = ddp_node.command(SPEC, Path("/shared/run-1"), "c2")
    assert "--nnodes=2" in argv
    assert "--nproc-per-node=2" in argv
    assert "--local-addr=10.0.0.2" in argv
    assert argv[-3:] == ["/shared/run-1/train.py", "--out", "/shared/run-1/out.json"]
    assert "HPCAI_STAGE" not in ddp_node.variables(SPEC, Path("/shared/run-1"), "c2")


def test_where_there_is_a_scratch_the_torchrun_of_a_node_is_started_by_what_brings_the_environment_there() -> None:
    spec = {**SPEC, "scratch": "/mnt/scratch"}
    argv = ddp_node.command(spec, Path("/shared/run-1"), "c2")
    assert argv[:2] == [SPEC["python"], "/shared/run-1/staging.py"]
    assert argv[2:] == ddp_node.command(SPEC, Path("/shared/run-1"), "c2")
    told = ddp_node.variables(spec, Path("/shared/run-1"), "c2")["HPCAI_STAGE"]
    assert json.loads(told) == {"scratch": "/mnt/scratch", "python": SPEC["python"]}


def test_a_node_is_told_whether_it_hosts_the_rendezvous() -> None:
    conf = [[word for word in ddp_node.command(SPEC, Path("/run-1"), node) if "conf" in word] for node in ("c1", "c2")]
    assert conf == [["--rdzv-conf=is_host=1"], ["--rdzv-conf=is_host=0"]]


def test_gloo_listens_on_the_way_to_the_other_nodes() -> None:
    here = {**SPEC, "addresses": {"c1": "127.0.0.1", "c2": "127.0.0.2"}}
    assert ddp_node.variables(here, Path("/run-1"), "c1")["GLOO_SOCKET_IFNAME"] == "lo"
    chosen = {**here, "environment": {"GLOO_SOCKET_IFNAME": "ib0", "HPCAI_RESULT": "elsewhere"}}
    given = ddp_node.variables(chosen, Path("/run-1"), "c1")
    assert (given["GLOO_SOCKET_IFNAME"], given["HPCAI_RESULT"]) == ("ib0", "/run-1/result.json")
    # Where there is no way, and where nobody else is, gloo finds its own.
    for addresses in ({"c1": "127.0.0.1"}, {"c1": "127.0.0.1", "c2": "name.invalid"}):
        assert "GLOO_SOCKET_IFNAME" not in ddp_node.variables({**here, "addresses": addresses}, Path("/run-1"), "c1")


def test_the_network_is_the_one_on_the_way_to_another_node(monkeypatch: pytest.MonkeyPatch, capsys: t.Any) -> None:
    # This node's own name points to the loopback device; the first node that does not is another one.
    ways = {"c1": ("lo", "127.0.1.1"), "nowhere.invalid": ("", ""), "c9": ("ib0", "10.0.0.1")}
    monkeypatch.setattr(network_interface, "way", ways.__getitem__)
    for words, said in (
        (["c1", "c9"], "ib0"),
        (["--address", "c1", "c9"], "10.0.0.1"),
        (["--address", "c1", "nowhere.invalid"], ""),
        (["c1"], ""),
    ):
        network_interface.main(words)
        assert capsys.readouterr().out == f"{said}\n"
    assert load(INTERFACE).way("127.0.0.1") == ("lo", "127.0.0.1")


def start_rank(tmp_path: Path, *words: str, **variables: str) -> list[str]:
    """Let rank.sh start a program that says what it finds; its interpreter stands in for that of a node."""
    programs = tmp_path / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "rank.sh").write_text(RANK.read_text())
    (programs / "torch_extensions.py").write_text("")
    (programs / "network_interface.py").write_text(
        "import sys; ask = sys.argv[1:]\nprint({'c1 c9': 'eth7', '--address c1 c9': '10.0.0.7'}.get(' '.join(ask), ''))"
    )
    (programs / "show.py").write_text(
        "import os, sys\nprint(*map(os.environ.get, ('GLOO_SOCKET_IFNAME', 'CUDA_VISIBLE_DEVICES')), *sys.argv[1:])"
    )
    argv = ["bash", programs / "rank.sh", words[0], sys.executable, programs / "show.py", *words[1:]]
    own = {"PATH": os.environ["PATH"], "SLURM_NODEID": "3", **variables}
    done = subprocess.run(argv, env=own, capture_output=True, text=True, check=True, timeout=patience(60))
    return done.stdout.split()


def test_a_rank_is_told_the_network_unless_the_user_chose_one(tmp_path: Path) -> None:
    assert start_rank(tmp_path, "torchrun", HPCAI_HOSTS="c1 c9") == ["eth7", "None"]
    assert start_rank(tmp_path, "torchrun", HPCAI_HOSTS="c1 c9", GLOO_SOCKET_IFNAME="ib0") == ["ib0", "None"]
    assert start_rank(tmp_path, "torchrun", HPCAI_HOSTS="c1 c2") == ["None", "None"]
    assert start_rank(tmp_path, "torchrun") == ["None", "None"]


def test_an_agent_is_told_the_address_that_other_nodes_find_it_by(tmp_path: Path) -> None:
    words = ("agent", "--local-addr=own", "", "x")
    assert start_rank(tmp_path, *words, HPCAI_HOSTS="c1 c9")[2:] == ["--local-addr=10.0.0.7", "x"]
    assert start_rank(tmp_path, *words, HPCAI_HOSTS="c1 c2")[2:] == ["x"]
    assert start_rank(tmp_path, *words)[2:] == ["x"]


def test_deepspeeds_launcher_knows_its_node_and_its_ranks_the_gpus_of_the_job(tmp_path: Path) -> None:
    assert start_rank(tmp_path, "agent", "--node_rank=own", CUDA_VISIBLE_DEVICES="4,5")[1:] == ["4,5", "--node_rank=3"]
    given = {"CUDA_VISIBLE_DEVICES": "0,1", "HPCAI_VISIBLE_DEVICES": "4,5"}
    assert start_rank(tmp_path, "deepspeed", **given)[1] == "4,5"
    assert start_rank(tmp_path, "torchrun", **given)[1] == "0,1"


def test_only_the_first_failure_is_kept(tmp_path: Path) -> None:
    for node in ("c2", "c1"):
        ddp_node.fail(tmp_path, {"node": node, "rank": 1, "why": "ended with 1"})
    assert json.loads((tmp_path / "failed.json").read_text())["node"] == "c2"
    assert [path.name for path in tmp_path.iterdir()] == ["failed.json"]


def test_a_silent_node_is_found_and_one_that_ended_is_none(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    now = [0.0]
    peers = ddp_node.Peers(tmp_path, ["c1", "c2", "c3"], clock=lambda: now[0])
    (tmp_path / "nodes/c1.beat").write_text("end")
    (tmp_path / "nodes/c2.beat").write_text("1")
    assert peers.silent() == ""
    now[0] = ddp_node.SILENCE + 1
    assert peers.silent() == "c2"
    (tmp_path / "nodes/c2.beat").write_text("2")
    assert peers.silent() == ""


def torchrun(tmp_path: Path, rank: str) -> Path:
    """Make a run whose torchrun is a program that starts one rank by ddp_node.py, as the real one does."""
    run = tmp_path / "run-1"
    for path in (run, run / "nodes", run / "ranks", tmp_path / "bin"):
        path.mkdir()
    for program in (NODE, EXTENSIONS, INTERFACE):
        (run / program.name).write_text(program.read_text())
    (run / "train.py").write_text(rank)
    fake = stand_in(tmp_path / "bin/python", "torchrun_of_one.sh", python=sys.executable)
    spec = {**SPEC, "python": str(fake), "nodes": ["c1"], "processes": 1}
    (run / "spec.json").write_text(json.dumps(spec))
    return run


def start(run: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(run / NODE.name), "node", str(run), "c1"])


def outcome(run: Path, name: str) -> t.Any:
    return json.loads((run / name).read_text())


def test_a_rank_that_ends_well(tmp_path: Path) -> None:
    run = torchrun(tmp_path, "print('x' * 100_000)")
    assert start(run).wait(patience(30)) == 0
    assert outcome(run, "nodes/c1.json")["rc"] == 0
    assert outcome(run, "ranks/rank-0.json") == {"rank": 0, "node": "c1", "rc": 0, "signalled": False}
    assert (run / "ranks/rank-0.txt").stat().st_size == 100_001
    assert (run / "nodes/c1.beat").read_text() == "end"
    assert not (run / "failed.json").exists()


@pytest.mark.parametrize(
    "code, why",
    [("raise SystemExit(3)", "ended with 3"), ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL")],
)
def test_a_rank_that_fails_is_named(tmp_path: Path, code: str, why: str) -> None:
    run = torchrun(tmp_path, code)
    assert start(run).wait(patience(30)) == 1
    failed = outcome(run, "failed.json")
    assert (failed["node"], failed["rank"], failed["why"]) == ("c1", 0, why)


def test_a_failure_elsewhere_ends_this_node(tmp_path: Path) -> None:
    run = torchrun(tmp_path, "import time; time.sleep(600)")
    running = start(run)
    begin = time.monotonic()
    while not (run / "ranks/rank-0.txt").exists() and time.monotonic() - begin < patience(30):
        time.sleep(0.1)
    time.sleep(1)  # the rank's own start
    ddp_node.fail(run, {"node": "c9", "rank": 5, "why": "ended with 1"})
    assert running.wait(patience(30)) == 1
    assert outcome(run, "failed.json")["node"] == "c9"
    assert outcome(run, "nodes/c1.json")["why"] == "another node or rank failed"
    assert outcome(run, "ranks/rank-0.json")["signalled"] is True


def test_a_run_that_takes_too_long_ends(tmp_path: Path) -> None:
    run = torchrun(tmp_path, "import time; time.sleep(600)")
    spec = outcome(run, "spec.json")
    (run / "spec.json").write_text(json.dumps({**spec, "timeout": 1}))
    assert start(run).wait(patience(30)) == 1
    assert outcome(run, "failed.json")["why"] == "not done after 1 s"


def said(place: str, step: int = 7, waits: bool = True) -> dict[str, t.Any]:
    return {"host": "node", "step": step, "place": place, "waits": waits}


@pytest.mark.parametrize(
    ("ranks", "first"),
    [
        ([said("a"), said("a"), None, said("a")], 2),
        ([said("a"), said("a", step=6), said("b"), said("a")], 1),
        ([said("a"), said("a"), said("a"), said("b")], 3),
        # On GPUs they all wait outside PyTorch's Python, in loss.item().
        ([said("a", waits=False), said("b", waits=False), said("a", waits=False)], 1),
        ([said("a"), said("b", waits=False)], 1),
        ([said("a"), said("b")], None),
        ([said("a"), said("a")], None),
    ],
)
def test_the_rank_that_hangs_is_the_one_that_is_elsewhere(ranks: list[t.Any], first: int | None) -> None:
    found = {number: one for number, one in enumerate(ranks) if one}
    assert stalls.first(found, len(ranks)) == first


def test_a_rank_is_where_it_calls_pytorch() -> None:
    frames = [
        ("/home/me/own.py", "train"),
        ("/env/torch/_tensor.py", "backward"),
        ("/env/torch/autograd/graph.py", "x"),
    ]
    stack = [stalls.traceback.FrameSummary(path, 3, name, lookup_line=False) for path, name in frames]
    assert stalls.where(stack) == {"place": "line 3 of own.py, train", "waits": True}
    assert stalls.where(stack[:1]) == {"place": "line 3 of own.py, train", "waits": False}


def test_rank_0_tells_once_what_all_ranks_have_said(tmp_path: Path) -> None:
    (tmp_path / "stalled-1.json").write_text("of an earlier start")
    ranks = [stalls.Stalls(tmp_path, rank, 2, f"node{rank}", 0.05) for rank in range(2)]
    assert list(tmp_path.iterdir()) == []
    told: list[t.Any] = []
    ranks[0].tell = told.append
    ranks[0].step(13)
    ranks[1].step(12)
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(patience(30))
    (verdict,) = told
    assert (verdict["rank"], verdict["host"], verdict["step"]) == (1, "node1", 13)
    assert verdict["problem"].startswith("no step for 0.05 s: rank 1 on node1 is at line ")


def test_nobody_tells_of_a_training_that_goes_on_or_is_over(tmp_path: Path) -> None:
    one = stalls.Stalls(tmp_path, 0, 1, "node0", 3600)
    one.tell = pytest.fail
    one.start()
    one.over.set()
    one.join(patience(30))
    assert not one.is_alive()
    assert list(tmp_path.iterdir()) == []
