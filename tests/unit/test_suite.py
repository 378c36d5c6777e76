# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs the tests: in which order, how many at once, and what it says in the end."""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

import pytest
import suite
from patience import patience
from stand_in import answer, stand_in
from suite import Chances, Part, choose, read_log, ready, run, summary

MOLECULE = """\
INFO     default > verify: Executing Testinfra tests found in extensions/molecule/default/tests...
============================= test session starts ==============================
..........                                                               [100%]
=========================== short test summary info ============================
SKIPPED [2] tests/test_health.py:190: of two nodes nobody can tell which one is slow
\x1b[32m= \x1b[32m\x1b[1m10 passed\x1b[0m, \x1b[33m2 skipped\x1b[0m\x1b[32m in 71.22s\x1b[0m\x1b[32m =\x1b[0m
INFO     default > verify: Verifier completed successfully.
"""
QUIET = "....\n8906 passed, 3 skipped, 1 warning in 240.01s (0:04:00)\n"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(suite, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    monkeypatch.setattr(suite, "PAGES", tmp_path / "no such setting")
    return tmp_path


def part(name: str, seconds: int = 1, command: str = "true", after: tuple[str, ...] = (), clean: str = "") -> Part:
    return Part(name, ("sh", "-c", command), seconds, f"part {name}", after, ("sh", "-c", clean) if clean else ())


def test_the_counts_of_a_test_runner_are_read_whatever_its_colours() -> None:
    counted, skipped = read_log(MOLECULE)
    assert counted == "10 passed, 2 skipped in 71.22s"
    assert skipped == ["[2] tests/test_health.py:190: of two nodes nobody can tell which one is slow"]
    assert read_log(QUIET)[0] == "8906 passed, 3 skipped, 1 warning in 240.01s (0:04:00)"
    assert read_log("All checks passed!\n") == ("", [])


def test_what_is_shown_of_a_failure_is_the_failure_and_not_the_tidying_after_it() -> None:
    tidying = [f"TASK [remove {number}]" for number in range(300)]
    log = ["begin", "==== FAILURES ====", "E  it is wrong", *tidying]
    assert suite.why("\n".join(log))[:2] == ["==== FAILURES ====", "E  it is wrong"]
    assert suite.why("\n".join(tidying))[-1] == "TASK [remove 299]"
    red = ["\x1b[31mfatal: [ctl]: FAILED! => no room\x1b[0m", "ERROR    Ansible return code was 2", *tidying]
    assert suite.in_short(suite.why("\n".join(red))) == ["fatal: [ctl]: FAILED! => no room"]


def test_the_summary_says_in_a_few_lines_what_ended_a_part() -> None:
    lines = ["TASK [start] ***", "fatal: [ctl]: FAILED! => no room", "CRITICAL Ansible return code was 2", "tidied up"]
    assert suite.in_short(lines) == lines[1:2]
    assert suite.in_short(lines[2:]) == lines[2:3]
    assert suite.in_short(["began", "Segmentation fault"]) == ["began", "Segmentation fault"]


def test_the_longest_begins_first_and_what_others_wait_for_counts_with_them() -> None:
    short, long, late = part("short", 20), part("long", 100), part("late", 90, after=("short",))
    assert ready([short, long, late], [], {"short", "long", "late"}, 1) == short
    assert ready([long, late], [], {"short", "long", "late"}, 1) == long
    assert ready([late], [], {"short", "long", "late"}, 1) is None
    assert ready([late], [], {"late"}, 1) == late, "nobody asked for what it would wait for"


def test_what_takes_more_cores_goes_first_and_waits_until_they_are_free() -> None:
    wide, long = part("wide", 10)._replace(cores=2), part("long", 100)
    assert ready([long, wide], [], set(), 2) == wide
    assert ready([long, wide], [], set(), 1) == long
    assert ready([wide], [], set(), 1) is None


def test_no_more_at_once_than_allowed(directory: Path) -> None:
    command = "for mine in one two three; do mkdir $mine 2>/dev/null && sleep 0.3 && rmdir $mine && exit; done; exit 1"
    results = run([part(str(number), command=command) for number in range(7)], jobs=2)
    assert [result.verdict for result in results] == ["passed"] * 7


def test_more_parts_than_cores_begin_at_once_and_one_where_one_core_is_given(directory: Path) -> None:
    for jobs, most in ((1, 1), (2, 3)):
        run([part(str(number), command="echo 1 >> log; sleep 1; echo -1 >> log") for number in range(4)], jobs)
        running = list(itertools.accumulate(int(line) for line in (directory / "log").read_text().split()))
        assert (max(running), running[-1]) == (most, 0)
        (directory / "log").unlink()


@pytest.mark.parametrize(("room", "cores", "most"), [(True, 1, 5), (False, 1, 1), (True, 2, 1)])
def test_one_part_more_begins_where_there_is_room_and_nobody_asked_for_fewer_jobs_than_cores(
    room: bool, cores: int, most: int, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite.Machine, "has_room", lambda machine, began: room)
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    run([part(str(number), command="echo 1 >> log; sleep 2; echo -1 >> log") for number in range(6)], jobs=1)
    running = list(itertools.accumulate(int(line) for line in (directory / "log").read_text().split()))
    assert (max(running), running[-1]) == (most, 0)


def test_there_is_room_when_cores_were_idle_for_long_enough_and_memory_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, now = suite.Machine(), time.monotonic()
    idle = machine.samples[-1][1]
    machine.samples = [(now - 100, idle - 3), (now - suite.WINDOW, idle - suite.WINDOW)]
    assert machine.idle(suite.WINDOW) == pytest.approx(1, abs=0.2)
    assert machine.idle() == pytest.approx(0.03, abs=0.02)
    assert machine.has_room(now - suite.WINDOW - 1)
    assert not machine.has_room(now - 1), "the last one has just begun"
    monkeypatch.setattr(suite, "MEMORY", 1 << 40)
    assert not machine.has_room(now - suite.WINDOW - 1)
    machine.samples = [(now - suite.WINDOW, idle)]
    monkeypatch.setattr(suite, "MEMORY", 0)
    assert not machine.has_room(now - suite.WINDOW - 1)


def test_all_run_and_each_failure_is_shown_with_its_end(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = run(
        [part("bad", command="echo why it failed; exit 3"), part("good", command="echo 2 passed in 1.00s")], 1
    )
    said = capsys.readouterr().out
    assert {result.part.name: result.verdict for result in results} == {"bad": "failed", "good": "passed"}
    assert "    why it failed" in said
    table = summary(results, 75)
    assert "1.2 min in all" in table and table.endswith("\n1 passed, 1 failed, 0 skipped")
    assert "2 passed in 1.00s" in table
    assert "failed in bad: why it failed" in table


ONCE = "if mkdir {0}; then echo FAILED by chance; exit 1; fi"


def test_what_fails_by_chance_runs_again_and_is_called_flaky(directory: Path) -> None:
    results = run([part("chance", command=ONCE.format("seen")), part("good")], 1, Chances(1))
    assert {result.part.name: result.verdict for result in results} == {"chance": "flaky", "good": "passed"}
    table = summary(results, 75)
    assert "failed once and passed then, so to be mended, in chance: FAILED by chance" in table
    assert table.endswith("\n2 passed, 0 failed, 0 skipped")
    assert "by chance" in (directory / "logs/chance.first.log").read_text()


def test_a_second_run_begins_beside_parts_that_are_not_over(directory: Path) -> None:
    once = "if mkdir seen; then exit 1; else touch second; fi"
    wait = f"for dummy in $(seq {round(patience(600))}); do test -e second && exit; sleep 0.1; done; exit 1"
    results = run([part("chance", command=once), part("long", 90, command=wait)], 2, Chances(1))
    assert {result.part.name: result.verdict for result in results} == {"chance": "flaky", "long": "passed"}


def test_what_waits_for_a_part_waits_for_its_second_run_as_well(directory: Path) -> None:
    parts = [part("chance", command=ONCE.format("seen")), part("late", command="test -e seen", after=("chance",))]
    results = run(parts, 1, Chances(1))
    assert [(result.part.name, result.verdict) for result in results] == [("chance", "flaky"), ("late", "passed")]


def test_what_fails_twice_has_failed_and_what_many_share_is_no_chance(directory: Path) -> None:
    results = run([part("bad", command="echo 1 >> ran; exit 3")], 1, Chances(1))
    assert [result.verdict for result in results] == ["failed"]
    assert (directory / "ran").read_text() == "1\n1\n"
    (directory / "ran").unlink()
    results = run([part(name, command="echo 1 >> ran; exit 3") for name in ("one", "two")], 1, Chances(1))
    assert [result.verdict for result in results] == ["failed", "failed"]
    assert (directory / "ran").read_text() == "1\n1\n", "the first's second run is worth nothing after the second's"
    hung = suite.Result(part("hung"), "failed: cut off after 9 s", 9, 1, "", [], [])
    assert not Chances(1).take(hung)
    assert not suite.by_chance([hung], 1)


FLAKY = """
from pathlib import Path

def test_chance():
    before = Path("seen").exists()
    Path("seen").touch()
    assert before, "not seen yet"

def test_well():
    assert True
"""


@pytest.mark.parametrize(("again", "verdict"), [(2, "flaky"), (0, "failed")])
def test_a_test_that_fails_by_chance_runs_again_by_itself_and_its_part_is_flaky(
    again: int, verdict: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "test_chance.py").write_text(FLAKY)
    monkeypatch.setattr(suite, "AGAIN", again)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    command = f"{sys.executable} -m pytest -p no:cacheprovider -q {directory}"
    (result,) = run([part("chance", command=command)], 1, Chances(again))
    assert result.verdict == verdict
    table = summary([result], 75)
    if again:
        assert "2 passed, 1 rerun" in table
        assert "so to be mended, in chance: E       AssertionError: not seen yet" in table
    else:
        assert "1 failed, 1 passed" in table


def test_a_second_run_that_was_put_off_belongs_to_the_next_call(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {
        "chance": part("chance", command=ONCE.format("seen")),
        "next": part("next", command="test -e seen && touch ran"),
        "bad": part("bad", command="exit 3"),
    }
    monkeypatch.setattr(suite, "PARTS", parts)
    monkeypatch.setattr(suite, "AGAIN", 1)
    monkeypatch.setattr(suite.signal, "signal", lambda *dummy: None)  # pytest has its own
    monkeypatch.setenv("HPCAI_TEST_LATER", "1")
    assert suite.main(["chance"]) == 0
    assert "a second time: chance" in capsys.readouterr().out
    monkeypatch.delenv("HPCAI_TEST_LATER")
    assert suite.main(["next"]) == 0
    said = capsys.readouterr().out
    assert "in chance: FAILED by chance" in said and "2 passed, 0 failed, 0 skipped" in said
    assert suite.main(["next"]) == 0 and "chance" not in capsys.readouterr().out
    # What fails again has failed, and more than chance does is told at once.
    monkeypatch.setenv("HPCAI_TEST_LATER", "1")
    assert suite.main(["bad"]) == 0
    monkeypatch.delenv("HPCAI_TEST_LATER")
    assert suite.main(["next"]) == 1
    monkeypatch.setenv("HPCAI_TEST_LATER", "1")
    monkeypatch.setattr(suite, "AGAIN", 0)
    assert suite.main(["bad"]) == 1 and not (directory / "logs/later.json").exists()


def test_memory_comes_in_larger_pieces_for_the_time_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "PAGES", tmp_path / "enabled")
    with suite.larger_pages():
        assert not suite.PAGES.exists(), "a kernel that has no such setting"
    suite.PAGES.write_text("always inherit [madvise] never\n")
    with pytest.raises(KeyError), suite.larger_pages():
        assert suite.PAGES.read_text() == "always"
        raise KeyError
    assert suite.PAGES.read_text() == "madvise"


@pytest.mark.parametrize("may", [True, False])
def test_temporary_files_are_in_memory_where_that_can_be_mounted(
    may: bool, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("mount", "umount"):
        answer(directory / "bin" / name, calls=directory / name, status=int(not may))
    monkeypatch.setenv("PATH", str(directory / "bin"), prepend=":")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.delenv("TMPDIR", raising=False)
    with suite.in_memory():
        place = os.environ.get("TMPDIR")
        *kind, mounted = (directory / "mount").read_text().split()
        assert kind == ["-t", "tmpfs", "-o", "mode=1777", "hpcai-test"] and Path(mounted).is_dir()
        assert place == (mounted if may else None)
    assert "TMPDIR" not in os.environ and not Path(mounted).exists()
    assert (directory / "umount").exists() == may and (not may or mounted in (directory / "umount").read_text())


def test_who_says_where_temporary_files_go_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    with suite.in_memory():
        assert os.environ["TMPDIR"] == str(tmp_path)
    assert tmp_path.exists()


def test_what_hangs_is_cut_off_with_its_children_and_cleaned_up(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite.Running, "limit", 0.5)
    command = "sleep 600 & echo $! > child; wait"
    (result,) = run([part("hangs", command=command, clean="touch cleaned")], 1)
    assert result.verdict.startswith("failed: cut off")
    assert (directory / "cleaned").exists()
    child = Path("/proc", (directory / "child").read_text().strip(), "cmdline")
    end = time.monotonic() + patience(10)
    while child.exists() and b"sleep" in child.read_bytes():
        assert time.monotonic() < end, "its child is still there"
        time.sleep(0.05)


def test_parts_keep_the_bytecode_of_what_they_import(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (directory / "one.py").touch()
    run([part("imports", command=f"cd {directory} && {sys.executable} -c 'import one'")], 1)
    assert list(directory.glob("__pycache__/one.*.pyc"))


def test_what_cannot_run_here_says_why_and_is_no_failure(directory: Path) -> None:
    (result,) = run([part("away")._replace(needs=("sh", "-c", "echo no sources; exit 1"))], 1)
    assert (result.verdict, result.said) == ("skipped", "no sources")
    assert "skipped in away: no sources" in summary([result], 1)


def test_what_is_left_out_is_said_to_be(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCAI_TEST_WITHOUT", "slow other")
    results = run([part("slow", command="touch ran"), part("good")], 1)
    assert {result.part.name: result.verdict for result in results} == {"slow": "skipped", "good": "passed"}
    assert not (directory / "ran").exists()
    assert "skipped in slow: HPCAI_TEST_WITHOUT leaves it out" in summary(results, 1)


def test_what_would_not_be_over_in_time_is_left_out_as_slow_as_the_machine_is(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCAI_TEST_UNTIL", str(time.time() + 3600))
    parts = [part("long", 3500, "touch ran"), part("longer", 3700, "touch ran too")]
    results = run(parts, 1)
    assert {result.part.name: result.verdict for result in results} == {"long": "passed", "longer": "skipped"}
    assert "skipped in longer: HPCAI_TEST_UNTIL leaves it 60 min, and here it takes 62" in summary(results, 1)
    # What ended before says how slow the machine is, and so does the last run to the next.
    (directory / "logs/pace").write_text("4\n")
    assert [result.verdict for result in run([part("next", 1000)], 1)] == ["skipped"]
    passed = suite.Result(part("before", 10), "passed", 50, 1, "", [], [])
    assert suite.too_late(part("next", 700), [passed]) == ""
    assert suite.too_late(part("next", 800), [passed])
    assert (directory / "logs/pace").read_text() == "5.00\n"


def test_a_failure_for_whose_second_run_there_is_no_time_stays_one(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run([part("bad", 60, command="exit 3")], 1)
    monkeypatch.setenv("HPCAI_TEST_UNTIL", str(time.time() + 30))
    assert run([], 1, Chances(0, first)) == first


def test_the_cluster_of_the_journey_stays_for_those_who_go_on_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HPCAI_TEST_KEEP", raising=False)
    words = {name: " ".join(p.command) for name in ("test", "all") for p in choose([name]) if p.name == "default"}
    assert "--destroy=never" not in words["test"]
    assert "--destroy=never" in words["all"]
    monkeypatch.setenv("HPCAI_TEST_KEEP", "1")
    assert "--destroy=never" in " ".join(choose(["default"])[0].command)


def test_no_scenario_trusts_what_molecule_remembers_of_a_clone_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCAI_TEST_KEEP", "1")
    for chosen, first in zip(choose(["default", "faults"]), ("destroy", "reset")):
        words = chosen.command[2].split()
        verbs = [word for before, word in zip(words, words[1:]) if before.endswith("/molecule")]
        assert verbs == [first, "test"]


@pytest.mark.parametrize(("ends", "converge"), [(0, "kept.yml"), (1, "")])
def test_faults_goes_on_without_a_converge_once_and_only_where_all_of_default_was_so(
    ends: int, converge: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(directory / "molecule", "molecule.sh")
    monkeypatch.setattr(suite, "KEPT", directory / "kept")
    monkeypatch.setattr(suite, "BIN", directory)
    (directory / "kept").touch()  # of a run before
    # What stands for Molecule runs no modules.
    default = suite.kept_cluster(suite.scenario("default", 1, ""))._replace(warm=False)
    faults = suite.broken_cluster(suite.scenario("faults", 1, ""))._replace(warm=False)
    monkeypatch.setenv("ENDS", str(ends))
    run([default], 1)
    assert (directory / "kept").exists() == (not ends)
    monkeypatch.delenv("ENDS")
    for again in (converge, ""):
        (directory / "log").unlink()
        run([faults], 1)
        assert (directory / "log").read_text().splitlines() == ["reset ", f"test {again}"]


def test_every_scenario_is_a_part_and_every_part_belongs_to_test_all() -> None:
    scenarios = {
        path.parent.name for path in (Path(__file__).parents[2] / "extensions/molecule").glob("*/molecule.yml")
    }
    parts = {part.name for part in choose(["all"])}
    assert scenarios <= parts == set(suite.PARTS)
    with pytest.raises(SystemExit, match="accepted: check, test, rest, all, lint"):
        choose(["nonsense"])


def test_only_scenarios_of_this_repository_have_a_python_that_has_imported() -> None:
    """The part ``reuse`` is a stranger."""
    warm = {name for name, one in suite.PARTS.items() if one.warm}
    assert {"default", "faults", "machine", "vm"} <= warm
    assert warm.isdisjoint({"lint", "unit", "integration", "reuse", "image"})
