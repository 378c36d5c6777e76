# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health checks of a lab: tests start what slurmd and the timer of the controller start, and need not wait."""

from __future__ import annotations

import json
import typing as t

MAILBOX = "/shared/.hpcai/health"
Finding = t.Dict[str, str]


class Lab(t.Protocol):
    """What is needed of a scenario's lab."""

    @property
    def compute(self) -> list[str]: ...

    def root(self, command: str, host: str = "ctl") -> str: ...


class Health:
    """The health checks of a lab, made to run now."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.bad, self.good = lab, lab.compute[-1], lab.compute[0]

    def begin(self) -> None:
        """Nodes that were first checked before their cluster was whole say so until the next boot."""
        self.reconcile()
        for node in self.lab.compute:
            self.lab.root("hpcai-agent suite boot", node)
        self.well()

    def check(self, *nodes: str) -> None:
        """What slurmd runs now and then, and what follows from it."""
        for node in nodes or (self.bad,):
            self.lab.root("/usr/local/sbin/hpcai-node-health periodic; systemctl start hpcai-health-publish", node)

    def reconcile(self) -> list[Finding]:
        """Make a pass and return its findings; one of the timer's own that is under way has read what was before."""
        self.lab.root(
            "while [ $(systemctl is-active hpcai-reconcile) = activating ]; do sleep 0.2; done"
            "; systemctl start hpcai-reconcile"
        )
        return list(json.loads(self.lab.root("cat /var/lib/hpcai/reconcile/findings.json"))["findings"])

    def found(self, kind: str, word: str) -> bool:
        """Whether the pass that is made now says something of the bad node."""
        told = [item for item in self.reconcile() if item["kind"] == kind and word in item["text"]]
        return any(self.bad in self.lab.root(f"scontrol show hostnames {item['nodes']}").split() for item in told)

    def reason(self, node: str) -> str:
        """Why a node is drained; empty if it is not."""
        state, dummy, reason = self.lab.root(f"sinfo -h -N -n {node} -o '%T|%E'").partition("|")
        return reason.strip() if "drain" in state else ""

    def well(self) -> None:
        """Nothing is the matter any more; what was drained is given back."""
        self.check(*self.lab.compute)
        for node in self.lab.compute:
            if self.reason(node):
                self.give_back(node)
        assert [item for item in self.reconcile() if item["kind"] != "watch"] == []

    def give_back(self, node: str) -> None:
        """What repair_node.yml does with a node that it has proved."""
        self.lab.root(f"hpcai-agent reconcile --release {node} && scontrol update nodename={node} state=undrain")
