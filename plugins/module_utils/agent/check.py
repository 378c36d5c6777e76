# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a check of the agent is, and what it knows of its node. Private, stdlib only."""

from __future__ import annotations

import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json, record
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.config import Config

SUITES = ("boot", "prolog", "epilog", "periodic", "full")


class Check(t.NamedTuple):
    """A check. ``place`` is ``module:function`` below ``agent``, imported when the check runs.

    ``cost`` is what it takes on a healthy node, in seconds: the cheapest run first. After ``limit`` it is given up.
    ``names`` are the checks that its records name, if not its own: what is given up leaves an error for each.
    """

    place: str
    cost: float
    limit: float
    suites: t.Sequence[str]
    names: t.Sequence[str] = ()
    needs_root: bool = False


class Host(t.NamedTuple):
    """Which boot of which machine this is; empty is unknown."""

    boot_id: str = ""
    physical_host: str = ""


class Context:
    """What a check knows: the configuration, what is latched, and what it kept in earlier runs of this boot."""

    def __init__(
        self,
        config: Config,
        suite: str,
        *,
        host: Host | None = None,
        state: t.Mapping[str, t.Any] | None = None,
        run: str | None = None,
        problem: str = "",
        clock: t.Callable[[], float] = time.time,
    ) -> None:
        self.config, self.suite, self.run, self.now = config, suite, run, clock
        self.host = host or Host()
        self.state, self.problem = dict(state or {}), problem
        self.keeping: Json = {}
        self._once: dict[str, t.Any] = {}

    @property
    def latched(self) -> dict[str, Json]:
        return dict(self.state.get("latched") or {})

    def kept(self, name: str) -> t.Any:
        """Return what was kept under a name in this boot, None at first. It was read from a file: trust nothing."""
        return self.keeping.get(name, (self.state.get("kept") or {}).get(name))

    def keep(self, name: str, value: t.Any) -> None:
        """Keep something that JSON can hold for the next runs; saved when the suite ends."""
        self.keeping[name] = value

    def once(self, name: str, read: t.Callable[[], t.Any]) -> t.Any:
        """Read once what several checks need."""
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
        told = {key: value for key, value in more.items() if value is not None}
        profile = self.config.profile.get("profile")
        about = {"tool": "hpcai-agent", "profile": profile, "physical_host": self.host.physical_host}
        known = {**about, "suite": self.suite, **(context or {}), **told}
        rest.setdefault("time", self.now())
        return record(check, self.config.node, run=self.run, context=known, **rest)

    def adopt(self, records: t.Iterable[Json]) -> list[Json]:
        """Add to records of the modules' code what the agent's own records say of the machine."""
        about = {"physical_host": self.host.physical_host, "suite": self.suite}
        return [{**one, "run": self.run, "context": {**(one.get("context") or {}), **about}} for one in records]
