# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible's main process loads once, so that none of its workers has to. Private.

Ansible forks a worker for each task of each host. What the main process has not loaded by then every worker loads
anew: all files of filters and tests for its first template, the connection, the code that packs modules. That was a
fifth of a run's processor time on the control host.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import gc
import importlib
import io
import sys
import typing as t
import zipfile
from datetime import datetime, timezone

from ansible.plugins import loader

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils import _templates
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._cache_dir import directory
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._imports import PLACE, import_statements

JINJA = ("filter_loader", "test_loader")
OWN_FILTER = "hpcai.gpu_cluster.slurm_nodes"
PLUGINS = {
    "action_loader": ("normal", "validate_argument_spec", "assert", "command"),
    "connection_loader": ("ssh", "local"),
    "lookup_loader": (
        "template",
        "file",
        "vars",
        *(f"hpcai.gpu_cluster.{name}" for name in ("sku_profile", "node_program", "node_agent", "scratch_options")),
    ),
    "shell_loader": ("sh",),
}
# What most modules import, of Ansible and of this collection.
MODULE = """from ansible.module_utils.basic import AnsibleModule
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _checks, _owned_files, _process, _sources
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import hostlist, text
"""


def _load(kind: str) -> None:
    of_kind: t.Any = getattr(loader, kind)
    if kind in JINJA:
        for dummy in of_kind.all():  # one of them is as dear as all
            pass
    for name in PLUGINS.get(kind, ()):
        of_kind.get(name, class_only=True)


def _imports(statement: ast.stmt, lines: list[str]) -> bool:
    """Whether its lines have the word: a walk through all statements took a quarter of the time here."""
    return any("import" in line for line in lines[statement.lineno - 1 : statement.end_lineno])


def _know_imports(packer: t.Any) -> None:
    """Keep of the files that most modules are sent with what they import, and find it in our own without parsing them.

    For each module of a run a worker parses some sixty files for what else has to be sent: most of what packing costs.
    """
    origin = packer.Origin
    known: dict[tuple[str, str | bytes], ast.Module] = {}
    parse = packer._compile_module_ast

    def keep(name: str, source: str | bytes) -> ast.Module:
        """Parse a file and keep its imports alone."""
        tree: ast.Module = parse(name, source)
        lines = (source if isinstance(source, str) else source.decode()).split("\n")
        tree.body = [statement for statement in tree.body if _imports(statement, lines)]
        return known.setdefault((name, source), tree)

    def recall(name: str, source: str | bytes) -> ast.Module:
        """Return the imports of a file that was kept or is our own, or all of another file."""
        tag = origin.get_tag(source)
        if tag and PLACE in (tag.path or "") and (name, source) not in known:
            with contextlib.suppress(SyntaxError, ValueError):
                return ast.parse(import_statements(source if isinstance(source, str) else source.decode()))
        return known.get((name, source)) or parse(name, source)

    packer._compile_module_ast = keep
    try:
        none = packer._builder.ExtensionManager.create(task_vars={})
        with zipfile.ZipFile(io.BytesIO(), "w") as archive:
            packer.recursive_finder("none", "ansible.modules.none", MODULE, archive, datetime.now(timezone.utc), none)
    finally:
        packer._compile_module_ast = recall


def _copy_names_alone() -> None:
    """Have the lookup ``template`` copy the names of a host's variables, as the module ``template`` does.

    It copies all that is in them, for each file: a tenth of a run's processor time on the control host.
    """
    lookup = loader.lookup_loader.get("template", class_only=True)
    t.cast("t.Any", sys.modules[lookup.__module__]).deepcopy = copy.copy


@functools.cache
def preload() -> None:
    """Load it; what another release of Ansible keeps elsewhere is left to whoever needs it."""
    for kind in (*JINJA, *PLUGINS):
        with contextlib.suppress(Exception):
            _load(kind)
    with contextlib.suppress(Exception):
        t.cast("t.Any", loader.filter_loader).get(OWN_FILTER)
        _know_imports(importlib.import_module("ansible.executor.module_common"))
    with contextlib.suppress(Exception):
        _copy_names_alone()
    with contextlib.suppress(Exception):
        _templates.keep(directory(None) / "templates")
    # What is there now stays to the end. To look through it is work for each worker, and makes pages its own.
    gc.collect()
    gc.freeze()
