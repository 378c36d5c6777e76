# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of environments, which of them go, commands of installers, proofs."""

from __future__ import annotations

import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import BuildStep
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import environment_store, installer
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import lock_files as wheelhouse
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.environment_store import Environment, Use, Wheel
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.installer import Interpreter
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.versions import CudaBuild, EnvironmentRefused

MARKERS = {
    "python_version": "3.11",
    "python_full_version": "3.11.2",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "sys_platform": "linux",
}
PYTHON = Interpreter("/usr/bin/python3", "/usr/bin/python3.11", "2.36", True, MARKERS)
HASH = f"--hash=sha256:{'a' * 64}"
CPU = CudaBuild("cpu", f"torch==2.13.0+cpu {HASH}\n", "")
DIGEST = "b" * 64


def named(build: CudaBuild = CPU, python: Interpreter = PYTHON, installer: str = "uv", **other: t.Any) -> str:
    texts = environment_store.checked_locks(build, other.get("extra", []), installer)
    wheels = environment_store.wheels(other.get("wheels", []))
    wanted = environment_store.inputs(build, texts, wheels, installer, python, other.get("indexes", []))
    return environment_store.label(build, python, installer, wanted)


def test_what_decides_is_in_the_name() -> None:
    names = [
        named(),
        named(CudaBuild("cpu", f"torch==2.14.0+cpu {HASH}\n", "")),
        named(python=PYTHON._replace(path="/opt/python/bin/python3.11")),
        named(python=PYTHON._replace(markers={**MARKERS, "platform_machine": "aarch64"})),
        named(installer="pip"),
        named(indexes=["https://example.org/simple"]),
        named(extra=[{"name": "more", "text": f"einops==0.8.1 {HASH}"}]),
        named(wheels=[{"path": "/x/apex-0.1-py3-none-any.whl", "sha256": DIGEST}]),
        named(wheels=[{"path": "/x/apex-0.1-py3-none-any.whl", "sha256": "c" * 64}]),
    ]
    assert len(set(names)) == len(names)
    assert all(environment_store.NAME.fullmatch(name) and name.startswith("cpu-py3.11-") for name in names)


def test_what_does_not_decide_is_not() -> None:
    assert named(CudaBuild("cpu", f"# a word\ntorch==2.13.0+cpu {HASH}\n\n", "")) == named()
    assert named(python=PYTHON._replace(markers={**MARKERS, "python_full_version": "3.11.9"})) == named()
    wheel = "apex-0.1-py3-none-any.whl"
    here, there = ([{"path": f"{folder}/{wheel}", "sha256": DIGEST}] for folder in ("/a", "/b"))
    assert named(wheels=here) == named(wheels=there)
    assert named(indexes=["https://me:secret@example.org/s"]) == named(indexes=["https://example.org/s"])


@pytest.mark.parametrize("given", [{"path": "x.whl"}, {"path": "x.tar.gz", "sha256": DIGEST}, {"sha256": DIGEST}])
def test_wheels_are_pinned(given: dict[str, str]) -> None:
    with pytest.raises(EnvironmentRefused, match="a wheel needs path and sha256"):
        environment_store.wheels([given])


OLD = [
    Environment("a", 1.0, 10.0),
    Environment("b", 2.0, 20.0),
    Environment("c", 3.0, 30.0),
    Environment("d", 4.0, None),
]


@pytest.mark.parametrize(
    ("use", "keep", "gone"),
    [
        (Use(), 1, ["b", "a"]),
        (Use(), 2, ["b", "a"]),
        (Use(), 3, ["a"]),
        (Use(), 4, []),
        (Use(), 0, []),
        (Use(oldest=environment_store.CLOCKS + 25.0), 1, ["b", "a"]),
        (Use(oldest=environment_store.CLOCKS + 15.0), 1, ["a"]),
        (Use(oldest=environment_store.CLOCKS + 5.0), 1, []),
        (Use(unknown="squeue is not there"), 1, []),
        (Use({"b": [7]}), 1, ["a"]),
    ],
)
def test_what_may_go(use: Use, keep: int, gone: list[str]) -> None:
    found, kept = environment_store.removable(OLD, {"d", "c"}, use, keep)
    assert found == gone
    assert set(kept) | set(gone) == {"a", "b", "c", "d"}


def test_squeue() -> None:
    assert environment_store.jobs(Outcome(0, "", "", 0)) == (None, "")
    oldest, unknown = environment_store.jobs(Outcome(0, "2026-01-05T10:00:02\n2026-01-05T09:00:00\n", "", 0))
    assert (unknown, oldest) == (
        "",
        environment_store.time.mktime(environment_store.time.strptime("2026-01-05 09", "%Y-%m-%d %H")),
    )
    assert environment_store.jobs(Outcome(None, "", "squeue cannot be started: No such file", 0))[1].startswith(
        "squeue says: squeue"
    )
    assert "N/A" in environment_store.jobs(Outcome(0, "N/A\n", "", 0))[1]


def test_passwords_of_indexes_are_not_told() -> None:
    step = BuildStep(
        [sys.executable, "-c", "raise SystemExit(1)", "--extra-index-url=https://me:secret@example.org/simple"]
    )
    with pytest.raises(EnvironmentRefused, match=r"--extra-index-url=https://example\.org/simple failed"):
        installer.perform([step], {}, 30)


def test_processes_are_found_by_what_they_run_and_say(tmp_path: Path) -> None:
    (tmp_path / "storage/envs").mkdir(parents=True)
    (tmp_path / "shared").symlink_to("storage")
    envs = f"{tmp_path}/shared/envs"
    for pid, said in (
        ("11", f"{envs}/a-1/bin/python\0x"),
        ("12", f"{envs}/other\0"),
        ("13", f"{tmp_path}/storage/envs/b-2/lib/libtorch.so\n"),
        ("self", f"{envs}/a-1"),
    ):
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "cmdline").write_text(said)
    assert environment_store.processes(envs, ["a-1", "b-2"], f"{tmp_path}/proc") == {"a-1": [11], "b-2": [13]}


SOURCE = installer.Source(["/w/0"], [])


def test_pip_asks_no_index_when_it_has_files() -> None:
    commands = installer.steps("pip", "", "/usr/bin/python3", "/e", ["/l0", "/l1"], [], SOURCE)
    first, second, third, compiled, last = commands
    assert first.argv == ["/usr/bin/python3", "-I", "-m", "venv", "/e"]
    assert {"--no-index", "--find-links=/w/0", "--no-deps", "--requirement=/l0"} <= set(second.argv)
    assert "--requirement=/l1" in third.argv
    assert "--no-compile" in second.argv and "--no-compile" in third.argv
    assert compiled.argv == ["/e/bin/python", "-I", "-c", installer.COMPILE]
    assert last.argv == ["/e/bin/python", "-I", "-m", "pip", "check"]


def test_pip_asks_indexes_otherwise() -> None:
    source = installer.Source([], ["https://example.org/simple"])
    argv = installer.steps("pip", "", "/usr/bin/python3", "/e", ["/l0"], [], source)[1].argv
    assert "--extra-index-url=https://example.org/simple" in argv
    assert "--no-index" not in argv


def test_uv_needs_no_pip() -> None:
    commands = installer.steps("uv", "/u/uv", "/usr/bin/python3", "/e", ["/l0"], ["/w/a.whl"], SOURCE)
    assert [step.argv[:3] for step in commands] == [
        ["/u/uv", "venv", "--python"],
        ["/u/uv", "pip", "install"],
        ["/u/uv", "pip", "install"],
        ["/e/bin/python", "-I", "-c"],
        ["/u/uv", "pip", "check"],
    ]
    assert commands[2].argv[-2:] == ["--no-index", "/w/a.whl"]


def test_all_but_tests_is_compiled_and_what_cannot_be_stops_nothing(tmp_path: Path) -> None:
    place = tmp_path / "tests/e"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    for name, text in (("a/b.py", "x = 1"), ("a/tests/c.py", "x = 1"), ("a/template.py", "def {{ name }}(")):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text)
    (step,) = (
        one for one in installer.steps("pip", "", "", str(place), [], [], SOURCE) if installer.COMPILE in one.argv
    )
    (tmp_path / "compileall.py").write_text("raise SystemExit('of whoever owns this directory')")
    done = subprocess.run(step.argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    compiled = sorted(path.name.partition(".")[0] for path in packages.rglob("*.pyc"))
    assert compiled == ["b"]


def test_conda_reads_nothing_but_the_file() -> None:
    (step,) = installer.steps("conda", "/m/micromamba", "", "/e", ["/l0"], [], SOURCE)
    assert step.argv == ["/m/micromamba", "create", "--yes", "--prefix=/e", "--file=/l0", "--offline", "--no-rc"]
    (step,) = installer.steps("conda", "/m/conda", "", "/e", ["/l0"], [], installer.Source([], []))
    assert step.argv == ["/m/conda", "create", "--yes", "--prefix=/e", "--file=/l0"]


def test_a_uv_that_is_not_the_locked_one_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "uv-1-py3-none-any.whl").write_bytes(b"x")
    with pytest.raises(EnvironmentRefused, match="none of those in uv's lock file"):
        installer.program("uv", "", [str(tmp_path)], [DIGEST], str(tmp_path))


FACTS: dict[str, t.Any] = {
    "host": "c1",
    "torch": "2.14.1+cu130",
    "cuda": "13.0",
    "archs": ["sm_75", "sm_90", "compute_90"],
    "sum": 8.0,
    "gpu_sum": 64.0**3,
    "gpu_error": None,
    "imports": [],
}
WANT: dict[str, t.Any] = {"torch": "2.14.1", "cuda": "13.0", "imports": [], "drivers": []}


@pytest.mark.parametrize(
    ("facts", "want", "said"),
    [
        ({}, {}, ""),
        ({}, {"cuda": None}, ""),
        ({"sum": 7.0}, {}, "sums up to 7.0"),
        ({"torch": "2.10.0"}, {}, "it holds torch 2.10.0, the lock file says 2.14.1"),
        ({"cuda": None}, {}, "is built for CPUs, asked for was CUDA 13.0"),
        ({}, {"cuda": ""}, "is built for CUDA 13.0, asked for was CPUs"),
        ({"gpu_sum": None, "gpu_error": "Found no NVIDIA driver"}, {}, "on the GPU of c1: Found no NVIDIA driver"),
        (
            {},
            {"drivers": [{"host": "c1", "version": "570.26", "capabilities": ["8.0"], "cuda": ""}]},
            "CUDA 13.0 needs driver 580.65.06 or newer, c1 has driver 570.26; torch 2.14.1+cu130: it has code for GPUs",
        ),
    ],
)
def test_proofs(facts: dict[str, t.Any], want: dict[str, t.Any], said: str) -> None:
    found = "; ".join(installer.problems({**FACTS, **facts}, {**WANT, **want}, True))
    assert said in found if said else not found


def test_a_proof_without_an_answer_says_what_was_said() -> None:
    with pytest.raises(EnvironmentRefused, match="does not work here: ImportError: libcudart"):
        installer.read(Outcome(1, "", "ImportError: libcudart.so.13: cannot open shared object file\n", 1.0), "here")
    with pytest.raises(EnvironmentRefused, match="did not end within"):
        installer.read(Outcome(None, "", "\nsrun did not end within 5 s", 5.0), "here")
    assert installer.read(Outcome(0, 'noise\n{"torch": "2"}\n', "", 1.0), "here") == {"torch": "2"}


@pytest.mark.parametrize(
    ("recorded", "wanted", "imports", "enough"),
    [
        ({}, "none", [], True),
        ({}, "local", [], False),
        ({"local": {"imports": []}}, "local", [], True),
        ({"local": {"imports": []}}, "slurm", [], False),
        ({"slurm": {"imports": ["apex"]}}, "local", ["apex"], True),
        ({"slurm": {"imports": []}}, "slurm", ["apex"], False),
    ],
)
def test_recorded_proofs(recorded: dict[str, t.Any], wanted: str, imports: list[str], enough: bool) -> None:
    assert installer.enough(recorded, wanted, imports) == enough


def looks(path: str) -> Interpreter | None:
    version = path.rpartition("python")[2]
    return (
        PYTHON._replace(command=path, markers={**MARKERS, "python_version": version}) if "broken" not in path else None
    )


def test_interpreters() -> None:
    there = ["/usr/bin/python3.11", "/opt/broken/bin/python3.12", "/opt/x/bin/python3.12"]
    assert installer.find_interpreter("", looks, there).command == "/usr/bin/python3"
    assert installer.find_interpreter("/opt/x/bin/python3.12", looks, there).command == "/opt/x/bin/python3.12"
    assert installer.find_interpreter("3.12", looks, there).command == "/opt/x/bin/python3.12"
    with pytest.raises(
        EnvironmentRefused, match=r"no Python 3.13 on this host.*Found: /usr/bin/python3.11, /opt/broken"
    ):
        installer.find_interpreter("3.13", looks, there)
    with pytest.raises(EnvironmentRefused, match=r"/broken is no interpreter that works here. Found: none"):
        installer.find_interpreter("/broken", looks, [])
    with pytest.raises(EnvironmentRefused, match="neither a path nor a version"):
        installer.find_interpreter("python3.12", looks, there)


def test_this_interpreter_tells_its_markers() -> None:
    found = installer.ask(sys.executable)
    assert found
    assert found.markers["sys_platform"] == "linux"


def test_platforms_of_wheels() -> None:
    found = wheelhouse.platforms("2.17", "x86_64")
    assert found[:2] == ["manylinux_2_17_x86_64", "manylinux2014_x86_64"]
    assert found[-3:] == ["manylinux_2_5_x86_64", "manylinux1_x86_64", "linux_x86_64"]
    assert wheelhouse.platforms("", "x86_64") == ["linux_x86_64"]


def test_wheels_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x-1-py3-none-any.whl"
    path.write_bytes(b"cut short")
    with pytest.raises(EnvironmentRefused, match="cannot be read as a wheel"):
        installer.unpacked_size([str(tmp_path)], [])
    assert Wheel(str(path), DIGEST).path == str(path)
