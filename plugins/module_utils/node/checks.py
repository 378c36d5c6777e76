# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks that make sense on any node: private, stdlib only, also packed into the node agent.

Each check measures one thing and returns one record. A tool that is absent, hangs or prints nonsense gives an error
of the infrastructure; only what was really seen becomes a fail.
"""

from __future__ import annotations

import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json, judge, metric, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.read import (
    BrokenError,
    FactError,
    NodeAccess,
    cpus,
    disk,
    meminfo,
    munge_status,
    node_state,
    usable,
)

# Checks that make sense on any node.


_IDLE_ALL_THE_SAME = {"CLOUD", "COMPLETING", "DYNAMIC_NORM"}


class NodeCheckOptions(t.NamedTuple):
    """The request of the checks; ``run`` is the identifier of the run, for the record."""

    node: str
    expect: t.Sequence[Json] = ()
    paths: t.Sequence[str] = ("/",)
    controller_epoch: float | None = None
    timeout: float = 20.0
    run: str | None = None
    profile: str | None = None
    credential: str | None = None


class NodeFinding(t.NamedTuple):
    """What one check measured; without a verdict the expectations decide."""

    metrics: t.Sequence[Json] = ()
    verdict: str | None = None
    reason: str = ""
    evidence: str = ""
    context: t.Mapping[str, t.Any] = {}


def cpu_count(node: NodeAccess, options: NodeCheckOptions) -> NodeFinding:
    """Count what the kernel has online, not what this process may use."""
    return NodeFinding([metric("cpus", cpus(node.read("/sys/devices/system/cpu/online")), "cpus")])


def memory(node: NodeAccess, options: NodeCheckOptions) -> NodeFinding:
    sizes = meminfo(node.read("/proc/meminfo"))
    return NodeFinding([metric(name, value, "bytes") for name, value in sizes.items()])


def disk_space(node: NodeAccess, options: NodeCheckOptions) -> NodeFinding:
    """Measure with df and not statvfs: a network mount that hangs must not take the check with it."""
    metrics: list[Json] = []
    for path in options.paths:
        if not node.exists(path):
            return NodeFinding(metrics, "fail", f"{path} does not exist")
        sizes = disk(node.get(["df", "-P", "--block-size=1", path]))
        metrics += [metric(name, value, "bytes", path=path) for name, value in sizes.items()]
    return NodeFinding(metrics)


def clock_skew(node: NodeAccess, options: NodeCheckOptions) -> NodeFinding:
    """Compare with the cluster's clock; the way of the task to the node counts as skew, so the limit is seconds."""
    if options.controller_epoch is None:
        return NodeFinding(verdict="skipped", reason="no controller_epoch was given")
    skew = node.now() - options.controller_epoch
    return NodeFinding([metric("skew", abs(skew), "s")], evidence=f"node minus reference: {skew:.3f} s")


def munge(node: NodeAccess, options: NodeCheckOptions) -> NodeFinding:
    """Decode a credential of this node, and one of another host: only the cluster's key opens that."""
    made = node.ask(["munge", "-n"])
    if made.problem:
        return NodeFinding(verdict="fail", reason=f"munge: {made.problem}")
    own, seconds = _decode(node, made.out)
    took = [metric("round_trip", made.seconds + seconds, "s")]
    if own:
        return NodeFinding(took, "fail", f"unmunge: {own}")
    if options.credential is None:
        return NodeFinding(took, "pass")
    if not options.credential:
        return NodeFinding(took, "error", "the host that compares munge keys made no credential")
    foreign = _decode(node, options.credential)[0]
    if foreign.startswith("Expired"):
        return NodeFinding(took, "error", f"unmunge: {foreign}: it was made too long ago, or the clocks differ")
    hint = "its munge key is not the cluster's (or the clocks differ): run configure.yml, or copy /etc/munge/munge.key"
    return NodeFinding(took, "fail" if foreign else "pass", f"unmunge: {foreign}; {hint}" if foreign else "")


def _decode(node: NodeAccess, credential: str) -> tuple[str, float]:
    """Return what is wrong with a credential, nothing when it is good, and how long the answer took."""
    answer = node.ask(["unmunge"], credential)
    status = munge_status(answer.out) if answer.out else answer.problem
    return "" if answer.rc == 0 and status.startswith("Success") else status, answer.seconds


def slurmd(node: NodeAccess, options: NodeCheckOptions) -> NodeFinding:
    """Check that systemd runs slurmd, and that the controller, asked from here, can use this node."""
    active = node.ask(["systemctl", "is-active", "slurmd"]).out.strip()
    if active != "active":
        return NodeFinding(verdict="fail", reason=f"slurmd is {active or 'unknown to systemd'}")
    observed = node_state(node.get(["scontrol", "show", "node", options.node, "--oneliner"]))
    verdict, state = usable(observed["state"]), observed["state"]
    reason = f"node is {state}{': ' if observed['reason'] else ''}{observed['reason']}"
    known = {"state": state, "idle": idle(state)}
    problem = "" if verdict == "pass" else reason
    return NodeFinding(verdict=verdict, reason=problem, evidence=f"slurmd active, node {state}", context=known)


def idle(state: str) -> bool:
    """Say whether no job has the node or is about to get it; one that is COMPLETING has ended."""
    base, *flags = state.split("+")
    return base == "IDLE" and not set(flags) - _IDLE_ALL_THE_SAME


class NodeCheck(t.NamedTuple):
    """A check and what is to blame when it fails."""

    measure: t.Callable[[NodeAccess, NodeCheckOptions], NodeFinding]
    blame: str


CHECKS: dict[str, NodeCheck] = {
    "cpu_count": NodeCheck(cpu_count, "hardware"),
    "memory": NodeCheck(memory, "hardware"),
    "disk_space": NodeCheck(disk_space, "config"),
    "clock_skew": NodeCheck(clock_skew, "config"),
    "munge": NodeCheck(munge, "config"),
    "slurmd": NodeCheck(slurmd, "software"),
}


def perform(names: t.Sequence[str], options: NodeCheckOptions, node: NodeAccess) -> list[Json]:
    """Run the checks one after the other; every one of them leaves a record."""
    return [_record(name, options, node) for name in names]


def _record(name: str, options: NodeCheckOptions, node: NodeAccess) -> Json:
    begin, start = node.now(), time.monotonic()
    try:
        finding = CHECKS[name].measure(node, options)
    except (BrokenError, OSError, FactError) as exc:
        finding = NodeFinding(verdict="error", reason=str(exc))
    metrics = judge(name, finding.metrics, options.expect) if finding.verdict in (None, "pass") else finding.metrics
    # A check that judged itself can still miss an expectation, and never gains by one.
    worse = next((m["verdict"] for m in metrics if m["verdict"] in ("fail", "error")), None)
    return record(
        name,
        options.node,
        time=begin,
        verdict=worse or finding.verdict,
        metrics=metrics,
        blame=CHECKS[name].blame,
        reason=finding.reason,
        run=options.run,
        seconds=time.monotonic() - start,
        evidence=finding.evidence,
        context={"tool": "node_checks", "profile": options.profile, **finding.context},
    )
