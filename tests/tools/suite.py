# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run parts of the test suite side by side, three on two cores, and say at the end what ran.

Parts wait (for a virtual machine to boot, for Slurm to give a node up), and none keeps a core busy by itself. When the
machine has been idle for a while although so many run, one part more begins.

``suite.py check``, ``test``, ``rest`` and ``all`` are ``make check``, ``make test``, ``make test-rest`` and
``make test-all``; names of parts run these parts; ``--list`` shows them all. What a part prints goes to
``.build/test/<part>.log``, and its end to the terminal when it fails. The exit status is 0 when every part passed.

Settings: ``JOBS``, how many cores they are given (all); ``HPCAI_TEST_PATIENCE``, a factor for all limits (3);
``HPCAI_TEST_WITHOUT``, names of parts that are left out, and said to be; ``HPCAI_TEST_KEEP``, anything: the cluster of
the part ``default`` stays for the part ``faults`` of a later call; ``HPCAI_TEST_AGAIN``, how many parts may have
failed by chance (0): if no more failed, these run a second time, and those that pass then are called flaky and shown.
So are parts in which up to so many tests failed that passed when they ran again at once, where they had failed;
``HPCAI_TEST_LATER``, anything: they do so at the end of the next call, which has more to do, and this one is content;
``HPCAI_TEST_UNTIL``, seconds since 1970 at which somebody cuts the whole off: parts that would not be over by then, as
slow as this machine is, are left out, and said to be; ``TMPDIR``, where parts keep what they need for a while (memory,
where root may mount that: a file system of its own, gone at the end).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / ".build/test"
BIN = ROOT / ".build/venv/bin"
# Is there while the cluster of the part default is as its last run and its tests left it; goes when that is taken down.
KEPT = ROOT / ".build/molecule/node/kept"
# Parts run side by side, so each of them is on a busy machine.
PATIENCE = float(os.environ.get("HPCAI_TEST_PATIENCE") or 3)
AGAIN = int(os.environ.get("HPCAI_TEST_AGAIN") or 0)
TAIL = 120  # lines of a failed part
SHORT = 600  # characters of a line in the summary
WINDOW = 30  # seconds over which the machine is looked at before one part more begins
IDLE = 0.25  # cores that were idle in that time
SIDE_BY_SIDE = 1.5  # parts for each core: by itself a part keeps about two thirds of one busy
MORE = 4  # parts beyond the number of cores, at most
MEMORY = 4 << 20  # KiB that have to be free for one part more
# Whether memory is given in such pieces; set while parts run, and back after them.
PAGES = Path("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled")


class Part(t.NamedTuple):
    """Something that passes or fails by itself."""

    name: str
    command: tuple[str, ...]
    seconds: int  # how long it takes on two cores that run two parts; the longest begin first
    what: str
    after: tuple[str, ...] = ()  # parts that have to be over before it
    clean: tuple[str, ...] = ()  # a command that takes away what a part leaves that was cut off
    needs: tuple[str, ...] = ()  # a command that ends with 0, or says why the part is skipped
    cores: int = 1  # how many it keeps busy; such parts begin first, when nobody has to be waited for
    warm: bool = False  # whether its playbooks' modules on this machine may run in an interpreter that has imported


class Result(t.NamedTuple):
    """How a part ended: passed, failed or skipped."""

    part: Part
    verdict: str
    wall: float
    cpu: float
    said: str  # the last line of its test runner, or why it was skipped
    skipped: list[str]
    end: list[str]  # the lines that tell why it failed


def make(name: str, seconds: int, what: str) -> Part:
    return Part(name, ("make", "--no-print-directory", name), seconds, what)


def pytest(name: str, seconds: int, what: str, *places: str, workers: int = 1) -> Part:
    side_by_side = ("-n", str(workers)) if workers > 1 else ("-p", "no:xdist")
    words = (str(BIN / "pytest"), *side_by_side, "-rs", "--durations=10", *(places or (f"tests/{name}",)))
    return Part(name, words, seconds, what, cores=workers)


def scenario(name: str, seconds: int, what: str, *options: str, after: t.Sequence[str] = ()) -> Part:
    molecule = str(BIN / "molecule")
    destroy = (molecule, "destroy", "--scenario-name", name)
    words = (molecule, "test", *options, "--scenario-name", name)
    return Part(name, words, seconds, what, tuple(after), destroy, warm=True)


JOBS = int(os.environ.get("JOBS") or os.cpu_count() or 1)
CLOUD = ("tests/integration/test_azure_infra.py", "tests/integration/test_azure_shared_groups.py")
ROLES = ("tests/integration/roles", "tests/integration/playbooks")
# As long as what is left: one process would take as long as all else of make test does beside it.
CLOUDS = tuple(
    str(path.relative_to(ROOT))
    for kind in ("azure", "cyclecloud", "google", "image_clouds", "results_blob")
    for path in sorted((ROOT / "tests/integration").glob(f"test_{kind}*.py"))
    if str(path.relative_to(ROOT)) not in CLOUD
)
MODULES = ("tests/integration", *(f"--ignore={place}" for place in (*CLOUD, *CLOUDS, *ROLES)))
CHECK = [
    make("lint", 80, "ruff, ansible-lint, shellcheck"),
    make("types", 10, "mypy"),
    pytest("unit", 340, "pure functions, plugins and modules by themselves", workers=min(JOBS, 2)),
]
TEST = [
    *CHECK,
    pytest("integration", 350, "modules against emulated tools and services", *MODULES),
    pytest("clouds", 350, "modules against emulated Azure, CycleCloud and Google", *CLOUDS),
    pytest("roles", 560, "roles and playbooks against emulated tools", *ROLES),
    scenario("default", 300, "the whole way on systemd nodes: converge, second run, check mode, verify"),
]
REST = [
    make("sanity", 190, "ansible-test sanity"),
    make("docs-site", 85, "antsibull-docs and Sphinx: all pages and the reference")._replace(name="docs"),
    pytest("azure_roles", 70, "roles that make and remove what is in Azure, against an emulator", *CLOUD),
    scenario("faults", 1230, "what happens to that cluster when things break", after=["default"]),
    pytest("reuse", 120, "a stranger's repository: munge and the Slurm roles by Molecule, from the tarball")._replace(
        clean=("podman", "rm", "--force", "--ignore", "molecule-slurm-ctl", "molecule-slurm-c1")
    ),
    scenario("upgrade", 220, "Slurm exchanged for the next release below running jobs"),
    scenario("elastic", 285, "nodes that Slurm creates and removes"),
    scenario("azure", 750, "from an empty Azure to nodes that trained and back, against emulators"),
    scenario("fleet", 300, "32 slurmd with broken GPUs, certified"),
    scenario("gpu", 265, "nodes that claim to be a GPU machine, certified"),
    scenario(
        "static",
        345,
        "bare machines that claim to be DGX H100, from inventories/static; then the same as somebody else's Slurm",
    ),
    scenario("machine", 980, "a virtual machine with eight NVMe disks: scratch, kernel settings, boots, faults"),
    scenario("vm", 700, "virtual machines: cgroup v2, NFS, CIFS, power cuts"),
    make(
        "execution-environment",
        600,
        "stages as AWX runs them, in the image of site_template: on real nodes, and into an emulated Azure and back",
    )._replace(name="image", needs=(str(BIN / "python"), "tests/tools/execution_environment.py", "built")),
    pytest("training", 480, "DeepSpeed, fairscale and Megatron: built, loaded, trained with on two hosts")._replace(
        needs=(str(BIN / "python"), "tests/tools/torch_stack.py", "cached")
    ),
    scenario("containers", 1500, "enroot and pyxis")._replace(needs=("extensions/molecule/containers/sources.sh",)),
]
GROUPS = {"check": CHECK, "test": TEST, "rest": REST, "all": TEST + REST}
PARTS = {part.name: part for part in TEST + REST}


def environment() -> dict[str, str]:
    """Parts find the tools of the virtual environment, keep the bytecode of what they import, and print no colours."""
    # A part costs ten minutes, and one of its tests seconds.
    retry = f"--reruns=1 --max-suite-reruns={AGAIN} --rerun-show-tracebacks " if AGAIN else ""
    return {
        # Container images set it for what is in them. Here thousands of processes would compile the collection again.
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "ANSIBLE_FORCE_COLOR": "0",
        "HPCAI_TEST_PATIENCE": str(PATIENCE),
        "NO_COLOR": "1",
        "PYTEST_ADDOPTS": retry + os.environ.get("PYTEST_ADDOPTS", ""),
    }


@functools.cache
def local_modules() -> dict[str, str]:
    """A scenario's playbooks run some hundred modules on this machine, and to start Python is most of what they cost.

    Those whose play names a Python find there what it compiled of the others.
    """
    sys.path.append(str(ROOT / "lab/roles/lab/files"))
    from warm import Warm

    (ROOT / ".build/bytecode").mkdir(exist_ok=True)
    one = Warm(BIN / "python")
    atexit.register(one.close)
    return {
        "HPCAI_TEST_PYTHON": str(one.interpreter),
        "PYTHONPATH": str(ROOT / "tests/integration/start"),
    }


class Machine:
    """How busy the machine is: what else runs on it counts too."""

    def __init__(self) -> None:
        self.samples: list[tuple[float, float]] = [self._sample()]

    @staticmethod
    def _sample() -> tuple[float, float]:
        """Return the time and the idle seconds of all cores; time that waits for a disk is not idle."""
        ticks = int(Path("/proc/stat").read_text().split()[4])
        return time.monotonic(), ticks / os.sysconf("SC_CLK_TCK")

    def look(self) -> None:
        if time.monotonic() - self.samples[-1][0] >= 1:
            self.samples.append(self._sample())

    def idle(self, seconds: float = 0) -> float:
        """Return how many cores were idle in the last seconds, or since the beginning."""
        now = self._sample()
        since = next((one for one in self.samples if not seconds or now[0] - one[0] <= seconds), self.samples[-1])
        return (now[1] - since[1]) / max(now[0] - since[0], 0.001)

    def has_room(self, began: float) -> bool:
        """Say whether one part more may begin; the last began at this time, and has to be seen at work first."""
        if time.monotonic() - began < WINDOW or self.idle(WINDOW) < IDLE:
            return False
        meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(meminfo["MemAvailable"].split()[0]) >= MEMORY


class Running:
    """A part whose process has been started."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.log = LOGS / f"{part.name}.log"
        self.environment = {**environment(), **(local_modules() if part.warm else {})}
        self.began = time.monotonic()
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                part.command,
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def limit(self) -> float:
        """Seconds after which it is cut off: it hangs, or the machine is far too slow for it."""
        return PATIENCE * max(400, 1.5 * self.part.seconds)

    def over(self) -> Result | None:
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        wall = time.monotonic() - self.began
        if pid == 0 and wall < self.limit:
            return None
        verdict = "passed"
        if pid == 0:
            self.end()
            verdict = f"failed: cut off after {wall:.0f} s"
            usage = os.wait4(self.process.pid, 0)[2]
        elif status:
            verdict = "failed"
        self.process.returncode = os.waitstatus_to_exitcode(status)
        text = self.log.read_text(errors="replace")
        if verdict != "passed":
            self.clean()
        said, skipped = read_log(text)
        if verdict == "passed" and re.search(r"\b\d+ rerun\b", said):
            verdict = "flaky"
        return Result(self.part, verdict, wall, usage.ru_utime + usage.ru_stime, said, skipped, why(text))

    def end(self) -> None:
        """End the part with all that it started, in time to clean up first."""
        for word in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, word)
            for dummy in range(100):
                if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    break
                time.sleep(0.1)

    def clean(self) -> None:
        if self.part.clean:
            with self.log.open("a") as log:
                subprocess.run(
                    self.part.clean, cwd=ROOT, env=self.environment, stdout=log, stderr=log, timeout=600, check=False
                )


def plain(text: str) -> str:
    """Return a log without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def read_log(text: str) -> tuple[str, list[str]]:
    """Say how a test runner counted, and what it skipped."""
    log = plain(text)
    counts = re.findall(r"^=*\s*(\d+ (?:passed|failed|error|skipped).* in [\d.]+s.*?)\s*=*$", log, re.MULTILINE)
    skipped = re.findall(r"^SKIPPED (\[\d+\] .*)$", log, re.MULTILINE)
    return (counts[-1] if counts else ""), skipped


# From the most telling to the least: pytest's lines, Ansible's of a task, Molecule's of Ansible, which do not say why.
ENDINGS = (
    re.compile(r"(FAILED|ERROR|RERUN) \S+::|E   "),
    re.compile(r"(\[ERROR\]: |fatal: \[|failed: \[)"),
    re.compile(r"(FAILED|ERROR|RERUN) |.*(CRITICAL|\bError\b)"),
)


def why(text: str) -> list[str]:
    """Pick the lines that tell why a part failed: what its test runner calls failures, or failed tasks and the end."""
    lines = plain(text).splitlines()
    titles = re.compile(r"^=+ (FAILURES|ERRORS|rerun test summary info) =+$")
    begin = next((n for n, line in enumerate(lines) if titles.search(line)), len(lines))
    earlier = [line for line in lines[:-TAIL] if ENDINGS[1].match(line)]
    return lines[begin : begin + TAIL] or earlier + lines[-TAIL:]


def in_short(lines: list[str]) -> list[str]:
    """Pick the few of these lines that a summary has room for: what ended the part."""
    telling = next((found for kind in ENDINGS if (found := [line for line in lines if kind.match(line)])), lines)
    return [line.strip()[:SHORT] for line in telling[-3:]]


def refusal(part: Part) -> str:
    """Say why a part does not run here; nothing when it does."""
    if part.name in os.environ.get("HPCAI_TEST_WITHOUT", "").split():
        return "HPCAI_TEST_WITHOUT leaves it out"
    if not part.needs:
        return ""
    done = subprocess.run(part.needs, cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip() or "its needs are not met"


def pace(results: t.Sequence[Result]) -> float:
    """Return how much longer parts take here than the tables above say: those that passed, or the last run."""
    passed = [result for result in results if result.verdict == "passed"]
    known = LOGS / "pace"
    if passed:
        known.write_text(f"{sum(result.wall for result in passed) / sum(one.part.seconds for one in passed):.2f}\n")
    return float(known.read_text()) if known.exists() else 1


def too_late(part: Part, results: t.Sequence[Result]) -> str:
    """Say why a part does not begin any more; nothing when it does."""
    left = float(os.environ.get("HPCAI_TEST_UNTIL") or math.inf) - time.time()
    takes = part.seconds * pace(results)
    return (
        "" if takes <= left else f"HPCAI_TEST_UNTIL leaves it {left / 60:.0f} min, and here it takes {takes / 60:.0f}"
    )


def ready(waiting: list[Part], results: list[Result], asked: set[str], free: int) -> Part | None:
    """Choose what begins next on so many free cores: the longest of those that wait for nobody."""
    over = {result.part.name for result in results}
    can = [part for part in waiting if part.cores <= free and all(name in over for name in part.after if name in asked)]
    # What others wait for counts with them.
    weight = {part.name: part.seconds + sum(p.seconds for p in waiting if part.name in p.after) for part in can}
    return max(can, key=lambda part: (part.cores, weight[part.name]), default=None)


def tell(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def keep_log(name: str) -> None:
    """Keep the log of a part that is to run a second time."""
    with contextlib.suppress(FileNotFoundError):  # kept by the call before
        (LOGS / f"{name}.log").rename(LOGS / f"{name}.first.log")


class Chances:
    """The parts that have failed once and may run a second time: what failed by chance, it seems."""

    def __init__(self, most: int, before: t.Sequence[Result] = ()) -> None:
        self.left = most
        self.first = {one.part.name: one for one in before}

    def take(self, result: Result) -> bool:
        """Whether this part runs again, whose first log is kept then. What hung does not."""
        name = result.part.name
        if result.verdict != "failed" or name in self.first or not self.left:
            return False
        self.left -= 1
        self.first[name] = result
        keep_log(name)
        tell(f"{name}: a second time, like a part that has not run; this log stays as {name}.first.log")
        return True

    def together(self, second: Result) -> Result:
        """Return how a part ended that may have run twice: what it cost, and of a flaky one how it failed."""
        first = self.first.get(second.part.name)
        if not first or second.verdict == "skipped":
            return first or second
        verdict, end = ("flaky", first.end) if second.verdict == "passed" else (second.verdict, second.end)
        return second._replace(verdict=verdict, wall=first.wall + second.wall, cpu=first.cpu + second.cpu, end=end)

    def gone(self, part: Part, results: list[Result]) -> str:
        """Say why a part is not worth a second run; nothing when it is."""
        failed = [one.part.name for one in results if one.verdict.startswith("failed")]
        return f"no second run, as {' and '.join(failed)} failed" if failed and part.name in self.first else ""


def run(parts: list[Part], jobs: int, chances: Chances | None = None) -> list[Result]:
    """Run all parts and return how each ended."""
    LOGS.mkdir(parents=True, exist_ok=True)
    chances = chances or Chances(0)
    waiting, results, running = list(parts), [], t.cast("list[Running]", [])
    waiting += [one.part for one in chances.first.values()]
    asked = {part.name for part in waiting}
    machine = Machine()

    def free() -> int:
        """Return how many cores there are for what begins next. Who gives fewer than there are wants no more."""
        used, places = sum(one.part.cores for one in running), int(SIDE_BY_SIDE * jobs)
        if used < places or used >= jobs + MORE or jobs < (os.cpu_count() or 1):
            return places - used
        return int(machine.has_room(max(one.began for one in running)))

    try:
        while waiting or running:
            machine.look()
            while waiting and (part := ready(waiting, results, asked, free())):
                waiting.remove(part)
                if reason := refusal(part) or chances.gone(part, results) or too_late(part, results):
                    results.append(chances.together(Result(part, "skipped", 0, 0, reason, [], [])))
                    tell(f"{part.name}: SKIPPED\n{reason}")
                    continue
                tell(f"{part.name}: {part.what}")
                running.append(Running(part))
            for one in list(running):
                result = one.over()
                if result:
                    running.remove(one)
                    show(result, one.log)
                    if chances.take(result):
                        waiting.append(result.part)
                    else:
                        results.append(chances.together(result))
            time.sleep(0.2)
    finally:
        for one in running:
            tell(f"{one.part.name}: ended before its time")
            one.end()
            one.clean()
    tell(f"{machine.idle():.1f} of {os.cpu_count()} cores were idle")
    return results


def by_chance(results: list[Result], most: int) -> list[Result]:
    """Return the failed parts, if there are so few that chance may have done it; what hung is none of them."""
    failed = [one for one in results if one.verdict.startswith("failed")]
    return failed if len(failed) <= most and all(one.verdict == "failed" for one in failed) else []


def put_off(failed: list[Result]) -> None:
    """Keep how parts failed for the next call, which runs them a second time."""
    kept = [{**one._asdict(), "part": one.part.name} for one in failed]
    (LOGS / "later.json").write_text(json.dumps(kept))
    for one in failed:
        keep_log(one.part.name)
    tell(f"In the next call a second time: {' '.join(one.part.name for one in failed)}; <part>.first.log is kept")


def take_up(asked: t.Collection[str]) -> list[Result]:
    """Return how parts failed whose second run was put off, once; who asks for a part has it run anew anyway."""
    kept = LOGS / "later.json"
    if not kept.exists():
        return []
    failed = [Result(**{**one, "part": PARTS[one["part"]]}) for one in json.loads(kept.read_text())]
    kept.unlink()
    return [one for one in failed if one.part.name not in asked]


def show(result: Result, log: Path) -> None:
    tell(f"{result.part.name}: {result.verdict} after {result.wall:.0f} s. {result.said}")
    if result.verdict != "passed":
        print("\n".join(f"    {line}" for line in result.end), flush=True)
        tell(f"{result.part.name}: the whole of it is in {log.relative_to(ROOT)}")


def summary(results: list[Result], wall: float) -> str:
    """Draw the table at the end. Processor time is the control host's processes; the nodes' own is not in it."""
    lines = ["", f"{'part':14}{'verdict':10}{'wall':>8}{'cpu':>8}  tests"]
    for one in results:
        counted = "" if one.verdict == "skipped" else one.said
        lines.append(f"{one.part.name:14}{one.verdict.split(':')[0]:10}{one.wall:7.0f}s{one.cpu:7.0f}s  {counted}")
    lines += ["", f"{wall / 60:.1f} min in all"]
    for one in results:
        if one.verdict.startswith("failed"):
            lines += [f"failed in {one.part.name}: {line}" for line in in_short(one.end)]
        if one.verdict == "flaky":
            lines += [
                f"failed once and passed then, so to be mended, in {one.part.name}: {line}"
                for line in in_short(one.end)
            ]
    for one in results:
        reasons = [one.said.splitlines()[0]] if one.verdict == "skipped" else one.skipped
        lines += [f"skipped in {one.part.name}: {reason}" for reason in reasons]
    passed = sum(one.verdict in ("passed", "flaky") for one in results)
    failed = sum(one.verdict.startswith("failed") for one in results)
    skipped = sum(one.verdict == "skipped" for one in results)
    return "\n".join([*lines, f"{passed} passed, {failed} failed, {skipped} skipped"])


def kept_cluster(default: Part) -> Part:
    """Return the part ``default`` that leaves its cluster, and says so, once all that it asks of it was so."""
    # Molecule keeps in the user's home what it believes of the scenarios of a path, even of a clone that is gone:
    # without a destroy before it, it takes a cluster for made that nobody made.
    said = shlex.join(("rm", "-f", str(KEPT)))
    made = f"{said} && {shlex.join(default.clean)} && {shlex.join((*default.command, '--destroy=never'))}"
    return default._replace(command=("sh", "-c", f"{made} && exec {shlex.join(('touch', str(KEPT)))}"))


def broken_cluster(faults: Part) -> Part:
    """Return the part ``faults`` that goes on with a cluster that ``default`` has left whole, once."""
    reset = shlex.join((faults.command[0], "reset", "--scenario-name", faults.name))
    whole = f"if rm {shlex.quote(str(KEPT))} 2>/dev/null; then export HPCAI_FAULTS_CONVERGE=kept.yml; fi"
    return faults._replace(command=("sh", "-c", f"{reset} && {{ {whole}; }} && exec {shlex.join(faults.command)}"))


def choose(words: list[str]) -> list[Part]:
    """Turn names of groups and parts into parts, each once."""
    unknown = [word for word in words if word not in GROUPS and word not in PARTS]
    if unknown or not words:
        accepted = ", ".join([*GROUPS, *PARTS])
        raise SystemExit(f"suite.py: {', '.join(unknown) or 'nothing'} asked for; accepted: {accepted}")
    chosen = {part.name: part for word in words for part in GROUPS.get(word) or [PARTS[word]]}
    if "default" in chosen and ("faults" in chosen or os.environ.get("HPCAI_TEST_KEEP")):
        chosen["default"] = kept_cluster(chosen["default"])
    if "faults" in chosen:
        chosen["faults"] = broken_cluster(chosen["faults"])
    return list(chosen.values())


def listed() -> str:
    rows = [f"{name:14}{part.seconds:5} s  {part.what}" for name, part in PARTS.items()]
    return "\n".join([*rows, *(f"{name:14}= {' '.join(p.name for p in parts)}" for name, parts in GROUPS.items())])


@contextlib.contextmanager
def in_memory() -> t.Iterator[None]:
    """Have what parts keep for a while in memory: tests make and remove files all the time, and no disk has to know."""
    if "TMPDIR" in os.environ or os.geteuid():
        yield
        return
    place = tempfile.mkdtemp(prefix="hp-")  # short, as paths of sockets have to be
    mount = ("mount", "-t", "tmpfs", "-o", "mode=1777", "hpcai-test", place)
    try:
        if subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode:  # a container may not
            yield
            return
        os.environ["TMPDIR"] = place
        try:
            yield
        finally:
            del os.environ["TMPDIR"]
            # Lazily: a daemon of a cluster that is kept may have a file in it.
            subprocess.run(("umount", "--lazy", place), check=True)
    finally:
        Path(place).rmdir()


@contextlib.contextmanager
def larger_pages() -> t.Iterator[None]:
    """Have the kernel give 64 KiB to who first writes to 4, where root may ask for that: Linux since 6.8.

    A Python that imports Ansible touches 8000 pages; it and its end cost a twentieth less so.
    """
    try:
        setting = PAGES.read_text()
        PAGES.write_text("always")
    except OSError:  # an older kernel, or not for us to set
        yield
        return
    try:
        yield
    finally:
        # always inherit madvise [never]
        PAGES.write_text(setting.partition("[")[2].partition("]")[0])


def interrupted(number: int, dummy: object) -> t.NoReturn:
    raise SystemExit(128 + number)


def main(words: list[str]) -> int:
    if words == ["--list"]:
        print(listed())
        return 0
    parts = choose(words)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, interrupted)
    began = time.monotonic()
    before = take_up([part.name for part in parts])
    put_by: list[Result] = []
    with in_memory(), larger_pages():
        if os.environ.get("HPCAI_TEST_LATER"):
            results = run(parts, JOBS)
            put_by = by_chance(results, AGAIN)
            if before or put_by:
                put_off([*before, *put_by])
        else:
            results = run(parts, JOBS, Chances(AGAIN, before))
    print(summary(results, time.monotonic() - began), flush=True)
    return int(any(one.verdict.startswith("failed") and one not in put_by for one in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
