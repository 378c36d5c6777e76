# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""However benchmarks/configure.py ends, no lab of it is left, and the kernel's limit is what it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest
from stand_in import answer, stand_in

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60 * float(os.environ.get("HPCAI_TEST_PATIENCE", "1"))

DRIVER = """
import sys
from pathlib import Path
import configure, tidy
fake = Path(sys.argv.pop(1))
configure.PLAYBOOK, configure.STATE, configure.ROOT = fake / "playbook", fake / "state", fake
tidy.at_least.__wrapped__.__defaults__ = (fake / "limit",)
configure.main()
"""


class Benchmark:
    """The benchmark with a playbook and a limit of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.limit, self.lab = directory, directory / "limit", directory / "lab"
        self.limit.write_text("128\n")
        stand_in(directory / "playbook", "playbook_of_lab.sh")
        answer(directory / "podman")
        path = f"{directory}:{os.environ['PATH']}"
        self.env = {**os.environ, "FAKE": str(directory), "PYTHONPATH": str(ROOT / "benchmarks"), "PATH": path}
        self.argv = [sys.executable, "-c", DRIVER, str(directory), "--hosts=3,30"]

    def start(self) -> subprocess.Popen[str]:
        """Start it and wait until its lab is there."""
        before = self.calls().count("up.yml")
        process = subprocess.Popen(self.argv, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wait(lambda: self.calls().count("up.yml") > before and self.lab.exists(), "no lab was made")
        return process

    def log(self) -> list[list[str]]:
        path = self.directory / "log"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def calls(self) -> list[str]:
        return [name for name, dummy in self.log()]


def wait(condition: t.Callable[[], object], problem: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, problem
        time.sleep(0.02)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def benchmark_of(tmp_path: Path) -> Benchmark:
    return Benchmark(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_playbook_and_takes_the_lab_down(benchmark_of: Benchmark, number: signal.Signals) -> None:
    process = benchmark_of.start()
    assert benchmark_of.limit.read_text() == "196\n"  # 6 * 30 + 16
    process.send_signal(number)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number
    assert benchmark_of.calls() == ["down.yml", "down.yml", "up.yml", "down.yml"]
    assert not runs(int(benchmark_of.log()[2][1]))
    assert not benchmark_of.lab.exists()
    assert benchmark_of.limit.read_text() == "128\n"


def test_it_ends_with_its_parent(benchmark_of: Benchmark) -> None:
    parent = subprocess.Popen(
        [
            "bash",
            "-c",
            f'"$@" >/dev/null 2>&1 & echo $! > {benchmark_of.directory}/pid; wait',
            "sh",
            *benchmark_of.argv,
        ],
        env=benchmark_of.env,
    )
    wait(benchmark_of.lab.exists, "no lab was made")
    parent.kill()
    parent.wait()
    pid = int((benchmark_of.directory / "pid").read_text())
    wait(lambda: not runs(pid), "it outlives its parent")
    assert not benchmark_of.lab.exists()
    assert benchmark_of.limit.read_text() == "128\n"


def test_what_a_killed_one_left_the_next_one_removes(benchmark_of: Benchmark) -> None:
    process = benchmark_of.start()
    playbook = int(benchmark_of.log()[-1][1])
    process.kill()
    process.communicate()
    wait(lambda: not runs(playbook), "the playbook outlives the benchmark")
    assert benchmark_of.lab.exists()
    assert benchmark_of.limit.read_text() == "196\n"
    (benchmark_of.directory / "fails").touch()
    second = subprocess.run(
        benchmark_of.argv, env=benchmark_of.env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert second.returncode != 0
    assert "lab/down.yml ended with 3" in second.stderr
    (benchmark_of.directory / "fails").unlink()
    third = benchmark_of.start()
    third.terminate()
    third.communicate(timeout=PATIENCE)
    assert not benchmark_of.lab.exists()
    assert benchmark_of.limit.read_text() == "128\n"  # not 196, which it found


def test_there_is_one_at_a_time(benchmark_of: Benchmark) -> None:
    process = benchmark_of.start()
    before = benchmark_of.calls()
    second = subprocess.run(
        benchmark_of.argv, env=benchmark_of.env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert second.returncode != 0
    assert "Another benchmark" in second.stderr
    assert benchmark_of.calls() == before
    process.terminate()
    process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize(
    "given, meanwhile, after",
    [(128, None, 128), (4096, None, 4096), (128, 512, 512)],
    ids=["raised and put back", "high enough", "somebody else's since"],
)
def test_the_limit(benchmark_of: Benchmark, given: int, meanwhile: int | None, after: int) -> None:
    benchmark_of.limit.write_text(f"{given}\n")
    process = benchmark_of.start()
    assert int(benchmark_of.limit.read_text()) == max(given, 196)
    if meanwhile:
        benchmark_of.limit.write_text(f"{meanwhile}\n")
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert int(benchmark_of.limit.read_text()) == after
    assert not list(benchmark_of.directory.glob("*.inotify"))
