# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A check of the agent, the context that it is given, and the agent's configuration."""

from __future__ import annotations

import json
import re
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    CheckError,
    Json,
    finite,
    record,
    validate_expectation,
)

# The agent's configuration, checked. Private, stdlib only.


PATH = "/etc/hpcai/agent.json"
SCHEMA = 1
TOOLS = ("nvidia_smi", "nvbandwidth", "nccl", "hpl", "fio", "perftest", "dcgmi")
KERNEL_LOG = "/dev/kmsg"
# A node's name becomes a file's name.
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")


class ConfigError(ValueError):
    """The configuration cannot be used; the text is fit for the user."""


class Suite(t.NamedTuple):
    """The configuration of a suite; None leaves a part to the agent."""

    checks: t.Sequence[str] | None = None
    budget: float | None = None


class AgentConfig(t.NamedTuple):
    """The configuration of a node's agent. ``checks`` holds options of single checks, by their names."""

    node: str
    profile: t.Mapping[str, t.Any] = {}
    paths: t.Sequence[str] = ("/",)
    shared_dir: str = ""
    scratch: Json | None = None
    sysfs: str = "/sys"
    proc: str = "/proc"
    kernel_log: str = KERNEL_LOG
    spool: str = "/var/lib/hpcai/agent"
    # Where what is known of this boot is kept: in memory, as a full disk must not silence the node that it is found on.
    state: str = ""
    mailbox: str = ""
    mailbox_user: str = ""
    tools: t.Mapping[str, str] = {}
    environment: t.Mapping[str, str] = {}
    suites: t.Mapping[str, Suite] = {}
    checks: t.Mapping[str, Json] = {}

    @property
    def home(self) -> str:
        return self.state or self.spool

    @property
    def expect(self) -> list[Json]:
        return list(self.profile.get("expect") or [])

    @property
    def gpus(self) -> int:
        """Return how many GPUs the machine type has; 0 where its profile does not say."""
        return int((self.profile.get("gpu") or {}).get("count") or 0)

    def options(self, check: str) -> Json:
        return dict(self.checks.get(check) or {})


_KINDS: dict[str, tuple[type, ...]] = {
    "profile": (dict,),
    "paths": (list,),
    "shared_dir": (str,),
    "scratch": (dict, type(None)),
    "sysfs": (str,),
    "proc": (str,),
    "kernel_log": (str,),
    "spool": (str,),
    "state": (str,),
    "mailbox": (str,),
    "mailbox_user": (str,),
    "tools": (dict,),
    "environment": (dict,),
    "suites": (dict,),
    "checks": (dict,),
}


def load(path: str | Path = PATH) -> AgentConfig:
    """Read and check the file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{path} cannot be read: {getattr(exc, 'strerror', None) or exc}") from exc
    try:
        return check(json.loads(text))
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"{path}: {exc}") from exc


def check(raw: t.Any) -> AgentConfig:
    """Return the checked configuration; raises ConfigError for whatever would make a check measure something else."""
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise ConfigError(f"a mapping with schema {SCHEMA} is needed")
    unknown = sorted(set(raw) - {"schema", "node", *_KINDS})
    if unknown:
        raise ConfigError(f"{', '.join(unknown)}: this agent does not know that")
    node = raw.get("node")
    if not isinstance(node, str) or not _NODE.fullmatch(node):
        raise ConfigError(f"node is {node!r}, a host name is needed")
    for name, kinds in _KINDS.items():
        if name in raw and not isinstance(raw[name], kinds):
            raise ConfigError(f"{name} is {raw[name]!r}, {' or '.join(kind.__name__ for kind in kinds)} is needed")
    given = {name: raw[name] for name in _KINDS if name in raw}
    _values(given)
    _profile(given.get("profile", {}))
    given["suites"] = {name: _suite(name, suite) for name, suite in given.get("suites", {}).items()}
    return AgentConfig(node=node, **given)


def _values(given: Json) -> None:
    _texts("paths", given.get("paths", []))
    for name in ("tools", "environment"):
        _texts(name, list(given.get(name, {}).values()))
    for name in ("sysfs", "proc", "kernel_log", "spool", "state"):
        if not (given.get(name) or "/").startswith("/"):
            raise ConfigError(f"{name} is {given[name]!r}, an absolute path is needed")
    other = sorted(set(given.get("tools", {})) - set(TOOLS))
    if other:
        raise ConfigError(f"tools {', '.join(other)}: accepted are {', '.join(TOOLS)}")
    if not all(isinstance(options, dict) for options in given.get("checks", {}).values()):
        raise ConfigError("checks holds one mapping of options per check")


def _texts(name: str, values: t.Any) -> None:
    if isinstance(values, list) and not all(isinstance(value, str) for value in values):
        raise ConfigError(f"{name} holds text and nothing else, not {values!r}")


def _profile(profile: t.Mapping[str, t.Any]) -> None:
    """Refuse a profile with an expectation that never applies: its check would never fail."""
    for name in ("gpu", "topology", "infiniband", "nvme"):
        if not isinstance(profile.get(name) or {}, dict):
            raise ConfigError(f"profile.{name} is {profile[name]!r}, a mapping is needed")
        count = (profile.get(name) or {}).get("count", 0)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ConfigError(f"profile.{name}.count is {count!r}, a whole number from 0 is needed")
    expect = profile.get("expect", [])
    if not isinstance(expect, list) or not all(isinstance(expectation, dict) for expectation in expect):
        raise ConfigError("profile.expect is no list of mappings")
    for expectation in expect:
        try:
            validate_expectation(expectation)
        except (CheckError, TypeError) as exc:
            raise ConfigError(f"profile: {exc}") from exc


def _suite(name: str, raw: t.Any) -> Suite:
    if not isinstance(raw, dict) or set(raw) - {"checks", "budget"}:
        raise ConfigError(f"suites.{name} is {raw!r}, a mapping of checks and budget is needed")
    checks, budget = raw.get("checks"), raw.get("budget")
    if checks is not None and (
        not isinstance(checks, list) or not all(isinstance(check_name, str) for check_name in checks)
    ):
        raise ConfigError(f"suites.{name}.checks is {checks!r}, a list of names is needed")
    if budget is not None and (finite(budget) or 0) < 1:
        raise ConfigError(f"suites.{name}.budget is {budget!r}, a number of seconds from 1 is needed")
    return Suite(checks, budget)


# A check of the agent, and the context that it is given. Private, stdlib only.


SUITES = ("boot", "prolog", "epilog", "periodic", "full")
# Users wait for these.
AROUND_JOBS = ("prolog", "epilog")


class AgentCheck(t.NamedTuple):
    """A check. ``function`` is ``module:function`` below ``agent``, imported when the check runs.

    ``cost`` is what it takes on a healthy node, in seconds: the cheapest run first. After ``limit`` it is given up, on
    a node with more to run than CPUs later.
    ``names`` are the checks that its records name, if not its own: what is given up leaves an error for each.
    """

    function: str
    cost: float
    limit: float
    suites: t.Sequence[str]
    names: t.Sequence[str] = ()
    needs_root: bool = False


class BootedHost(t.NamedTuple):
    """The boot and the physical host of a node; empty is unknown."""

    boot_id: str = ""
    physical_host: str = ""


class Context:
    """What a check is given: the configuration, latched faults, and what it kept in earlier runs of this boot."""

    def __init__(
        self,
        config: AgentConfig,
        suite: str,
        *,
        host: BootedHost | None = None,
        state: t.Mapping[str, t.Any] | None = None,
        run: str | None = None,
        problem: str = "",
        clock: t.Callable[[], float] = time.time,
    ) -> None:
        self.config, self.suite, self.run, self.now = config, suite, run, clock
        self.host = host or BootedHost()
        self.state, self.problem = dict(state or {}), problem
        self.keeping: Json = {}
        self._once: dict[str, t.Any] = {}

    @property
    def latched(self) -> dict[str, Json]:
        return dict(self.state.get("latched") or {})

    def kept(self, name: str) -> t.Any:
        """Return what was kept under a name in this boot, None at first. It comes from a file that may be damaged."""
        return self.keeping.get(name, (self.state.get("kept") or {}).get(name))

    def keep(self, name: str, value: t.Any) -> None:
        """Keep something that JSON can hold for the next runs; saved when the suite ends."""
        self.keeping[name] = value

    def once(self, name: str, read: t.Callable[[], t.Any]) -> t.Any:
        """Return a value that several checks need, read once."""
        if name not in self._once:
            self._once[name] = read()
        return self._once[name]

    def record(
        self,
        check: str,
        *,
        latched: bool = False,
        code: t.Any = None,
        action: str = "",
        context: t.Mapping[str, t.Any] | None = None,
        **rest: t.Any,
    ) -> Json:
        """Return a record of this node; what is ``latched`` stays a finding until the node has booted again."""
        more = {"code": code, "action": action or None, "latched": latched or None}
        details = {key: value for key, value in more.items() if value is not None}
        profile = self.config.profile.get("profile")
        about = {"tool": "hpcai-agent", "profile": profile, "physical_host": self.host.physical_host}
        known = {**about, "suite": self.suite, **(context or {}), **details}
        rest.setdefault("time", self.now())
        return record(check, self.config.node, run=self.run, context=known, **rest)

    def adopt(self, records: t.Iterable[Json]) -> list[Json]:
        """Return records of the modules' code with the run, physical host and suite that the agent's own ones have."""
        about = {"physical_host": self.host.physical_host, "suite": self.suite}
        return [
            {**original, "run": self.run, "context": {**(original.get("context") or {}), **about}}
            for original in records
        ]
