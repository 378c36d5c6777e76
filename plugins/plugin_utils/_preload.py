# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible's main process loads once, so that none of its workers has to. Private.

Ansible forks a worker for each task of each host. What the main process has not loaded by then every worker loads
anew: all files of filters and tests for its first template, the connection, the code that packs modules. That was a
fifth of a run's processor time on the control host.
"""

from __future__ import annotations

import contextlib
import importlib
import typing as t

from ansible.plugins import loader

JINJA = ("filter_loader", "test_loader")
OWN_FILTER = "hpcai.gpu_cluster.slurm_nodes"
PLUGINS = {
    "action_loader": ("normal", "validate_argument_spec", "assert", "command"),
    "connection_loader": ("ssh", "local"),
    "lookup_loader": ("template", "file", "hpcai.gpu_cluster.sku_profile", "hpcai.gpu_cluster.node_program"),
    "shell_loader": ("sh",),
}


def _load(kind: str) -> None:
    of_kind: t.Any = getattr(loader, kind)
    if kind in JINJA:
        for dummy in of_kind.all():  # one of them is as dear as all
            pass
    for name in PLUGINS.get(kind, ()):
        of_kind.get(name, class_only=True)


def preload() -> None:
    """Load it; what another release of Ansible keeps elsewhere is left to whoever needs it."""
    for kind in (*JINJA, *PLUGINS):
        with contextlib.suppress(Exception):
            _load(kind)
    with contextlib.suppress(Exception):
        t.cast("t.Any", loader.filter_loader).get(OWN_FILTER)
        importlib.import_module("ansible.executor.module_common")
