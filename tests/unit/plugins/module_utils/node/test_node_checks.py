# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import read
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.checks import CHECKS, NodeCheckOptions, perform
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.read import BrokenError, NodeAccess

MEMINFO = (
    "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:   20000000 kB\nHugePages_Total:       0\n"
)
DF = (
    "Filesystem     1-blocks        Used   Available Capacity Mounted on\n"
    "overlay    270553174016 42948403200 216398950400      17% /\n"
)
NODE = (
    "NodeName=c1 Arch=x86_64 CoresPerSocket=4 CPUAlloc=0 State={} ThreadsPerCore=1 Partitions=main "
    "BootTime=2026-11-21T07:00:00 {}\n"
)
UNMUNGE = "STATUS:           Success (0)\nENCODE_HOST:      c1 (10.0.0.1)\nUID:              root (0)\n"


class Bench(NodeAccess):
    """A node that answers from a table; what is not in it is not installed."""

    def __init__(self, answers: dict[str, t.Any]) -> None:
        super().__init__(1.0)
        self.answers = {
            "/sys/devices/system/cpu/online": "0-3\n",
            "/proc/meminfo": MEMINFO,
            "df": DF,
            "munge": "MUNGE:AwQFAAC=:\n",
            "unmunge": UNMUNGE,
            "systemctl": "active\n",
            "scontrol": NODE.format("IDLE", ""),
            **answers,
        }

    def read(self, path: str) -> str:
        return str(self.answers[path])

    def exists(self, path: str) -> bool:
        return path != "/absent"

    def now(self) -> float:
        return 1000.0

    def ask(self, argv: t.Sequence[str], data: str | None = None) -> Outcome:
        found = self.answers.get(argv[0])
        if found is None:
            raise BrokenError(f"{argv[0]} is not installed")
        return found if isinstance(found, Outcome) else Outcome(0, found, "", 0.01)


def check(name: str, answers: dict[str, t.Any] | None = None, **options: t.Any) -> dict[str, t.Any]:
    (found,) = perform([name], NodeCheckOptions("c1", **options), Bench(answers or {}))
    return found


def expect(name: str, metric: str, op: str, value: float, unit: str, **labels: t.Any) -> list[dict[str, t.Any]]:
    return [{"check": name, "metric": metric, "op": op, "value": value, "unit": unit, "source": "test", **labels}]


@pytest.mark.parametrize("text, want", [("0-3\n", 4), ("0", 1), ("0-3,8,10-11", 7)])
def test_cpus(text: str, want: int) -> None:
    assert read.cpus(text) == want


@pytest.mark.parametrize("reader", [read.cpus, read.meminfo, read.disk, read.node_state, read.munge_status])
@pytest.mark.parametrize("text", ["", "nonsense"])
def test_nonsense_is_refused(reader: t.Callable[[str], t.Any], text: str) -> None:
    with pytest.raises(read.FactError):
        reader(text)


def test_memory_in_bytes() -> None:
    assert read.meminfo(MEMINFO) == {"total": 24_576_000_000, "available": 20_480_000_000}


@pytest.mark.parametrize(
    "line", [DF.splitlines()[1], "tmpfs 270553174016 0 216398950400 - /run", "a b 270553174016 1 216398950400 1% /x"]
)
def test_disk(line: str) -> None:
    assert read.disk(f"Filesystem\n{line}\n") == {"size": 270553174016, "free": 216398950400}


@pytest.mark.parametrize(
    "state, rest, reason, verdict",
    [
        ("IDLE", "", "", "pass"),
        ("MIXED+CLOUD", "", "", "pass"),
        ("ALLOCATED", "", "", "pass"),
        ("IDLE+DRAIN", "Reason=hpcai:xid:79 two words [root@2026-11-21T07:00:00]", "hpcai:xid:79 two words", "warn"),
        ("IDLE*", "", "", "fail"),
        ("DOWN*", "Reason=Not responding [slurm@2026-11-21T07:00:00]", "Not responding", "fail"),
        ("IDLE+NOT_RESPONDING", "", "", "fail"),
        ("DOWN+DRAIN+INVALID_REG", "Reason=gres/gpu count reported lower", "gres/gpu count reported lower", "fail"),
    ],
)
def test_node_state(state: str, rest: str, reason: str, verdict: str) -> None:
    got = read.node_state(NODE.format(state, rest))
    assert got == {"state": state, "reason": reason}
    assert read.usable(got["state"]) == verdict


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_that_cannot_work_is_an_error_of_the_infrastructure(name: str) -> None:
    nothing = dict.fromkeys(("df", "munge", "unmunge", "systemctl", "scontrol", "nvidia-smi"))
    broken = {**nothing, "/sys/devices/system/cpu/online": "", "/proc/meminfo": ""}
    got = check(name, broken)
    if name == "clock_skew":
        assert got["verdict"] == "skipped"
    else:
        assert (got["verdict"], got["class"]) == ("error", "infra")
        assert got["reason"]


@pytest.mark.parametrize("name", ["cpu_count", "memory", "disk_space"])
def test_without_an_expectation_nothing_is_judged(name: str) -> None:
    got = check(name)
    assert (got["verdict"], got["node"], got["class"]) == ("unjudged", "c1", None)


@pytest.mark.parametrize(
    "name, options, verdict, blamed",
    [
        ("cpu_count", {"expect": expect("cpu_count", "cpus", "==", 4, "cpus")}, "pass", None),
        ("cpu_count", {"expect": expect("cpu_count", "cpus", ">=", 96, "cpus")}, "fail", "hardware"),
        ("memory", {"expect": expect("memory", "total", ">=", 2e12, "bytes")}, "fail", "hardware"),
        ("disk_space", {"expect": expect("disk_space", "free", ">=", 1, "bytes", path="/")}, "pass", None),
        ("disk_space", {"paths": ["/", "/absent"]}, "fail", "config"),
        (
            "clock_skew",
            {"controller_epoch": 990.0, "expect": expect("clock_skew", "skew", "<=", 5, "s")},
            "fail",
            "config",
        ),
        (
            "clock_skew",
            {"controller_epoch": 1001.0, "expect": expect("clock_skew", "skew", "<=", 5, "s")},
            "pass",
            None,
        ),
        ("munge", {}, "pass", None),
        ("munge", {"expect": expect("munge", "round_trip", "<=", 0.001, "s")}, "fail", "config"),
        ("slurmd", {}, "pass", None),
        ("clock_skew", {}, "skipped", None),
    ],
)
def test_verdicts(name: str, options: dict[str, t.Any], verdict: str, blamed: str | None) -> None:
    got = check(name, **options)
    assert (got["verdict"], got["class"]) == (verdict, blamed)


@pytest.mark.parametrize(
    "name, answers, verdict, reason",
    [
        ("munge", {"munge": Outcome(1, "", "munge: Error: no socket", 0.1)}, "fail", "no socket"),
        ("munge", {"unmunge": Outcome(15, "STATUS:  Expired credential (15)\n", "", 0.1)}, "fail", "Expired"),
        ("munge", {"unmunge": Outcome(1, "", "unmunge: Error: gone", 0.1)}, "fail", "gone"),
        ("slurmd", {"systemctl": Outcome(3, "failed\n", "", 0.1)}, "fail", "slurmd is failed"),
        ("slurmd", {"scontrol": NODE.format("DOWN*", "Reason=x")}, "fail", "node is DOWN*: x"),
        ("slurmd", {"scontrol": NODE.format("IDLE+DRAIN", "")}, "warn", "node is IDLE+DRAIN"),
        ("slurmd", {"scontrol": Outcome(1, "", "slurm_load_node error", 0.1)}, "error", "slurm_load_node"),
    ],
)
def test_what_the_tools_say(name: str, answers: dict[str, t.Any], verdict: str, reason: str) -> None:
    got = check(name, answers)
    assert got["verdict"] == verdict
    assert reason in got["reason"]


def test_a_skipped_check_says_why() -> None:
    assert check("clock_skew")["reason"] == "no controller_epoch was given"


def test_a_real_node_refuses_tools_that_are_not_there() -> None:
    with pytest.raises(BrokenError, match="no-such-tool is not installed"):
        NodeAccess(1.0).ask(["no-such-tool"])


@pytest.mark.parametrize(
    "status, verdict, blamed",
    [("Invalid credential (13)", "fail", "config"), ("Expired credential (15)", "error", "infra")],
)
def test_a_credential_of_another_host(status: str, verdict: str, blamed: str) -> None:
    class Foreign(Bench):
        def ask(self, argv: t.Sequence[str], data: str | None = None) -> Outcome:
            bad = argv[0] == "unmunge" and data == "MUNGE:foreign:"
            return Outcome(1, f"STATUS:  {status}\n", "", 0.1) if bad else super().ask(argv, data)

    (got,) = perform(["munge"], NodeCheckOptions("c1", credential="MUNGE:foreign:"), Foreign({}))
    assert (got["verdict"], got["class"]) == (verdict, blamed)
    assert ("key" in got["reason"]) == (verdict == "fail")


@pytest.mark.parametrize(
    "state, want",
    [
        ("IDLE", True),
        ("IDLE+CLOUD", True),
        ("IDLE+COMPLETING", True),
        ("IDLE+PLANNED", False),
        ("IDLE+RESERVED", False),
        ("IDLE+DRAIN", False),
        ("IDLE*", False),
        ("MIXED", False),
        ("ALLOCATED", False),
    ],
)
def test_only_idle_nodes_are_free(state: str, want: bool) -> None:
    got = check("slurmd", {"scontrol": NODE.format(state, "")})
    assert (got["context"]["state"], got["context"]["idle"]) == (state, want)
