# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of the module node_checks, run by the agent. Private, stdlib only."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.check import Context
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.config import Config
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node import checks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.node.access import Node

# Longer than any of these programs takes, shorter than the time that the check is given.
TIMEOUT = 4.0


class Here(Node):
    """This node, with the system directories that the configuration names."""

    def __init__(self, config: Config) -> None:
        super().__init__(TIMEOUT)
        self._roots = {"/sys/": config.sysfs, "/proc/": config.proc}

    def read(self, path: str) -> str:
        for start, root in self._roots.items():
            if path.startswith(start):
                return Path(root, path[len(start) :]).read_text()
        return super().read(path)


def _run(name: str, context: Context) -> list[Json]:
    config = context.config
    profile = config.profile.get("profile")
    options = checks.Options(config.node, config.expect, config.paths, run=context.run, profile=profile)
    return context.adopt(checks.perform([name], options, Here(config)))


def cpu_count(context: Context) -> list[Json]:
    return _run("cpu_count", context)


def memory(context: Context) -> list[Json]:
    return _run("memory", context)


def disk_space(context: Context) -> list[Json]:
    return _run("disk_space", context)


def munge(context: Context) -> list[Json]:
    """Ask the own daemon only; the check that talks to the controller is another one."""
    return _run("munge", context)
