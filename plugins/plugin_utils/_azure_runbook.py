# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runbook of the expiry as one file: the modules that destroy.yml uses, and the settings of one cluster."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.azure import client, expire, ownership, teardown

_HEAD = '''\
"""Deletes the resource groups of cluster {cluster} when the tag expires-on of all of them is due.

Published by role azure_teardown of hpcai.gpu_cluster; a change made here is undone by the next expire.yml. A group
with a lock, or with a resource that neither the collection nor CycleCloud made, stays.
"""
import sys
import types

sys.modules["azure"] = None  # Azure's own libraries are of any age here, and none is needed


def _module(name, source):
    parts = name.split(".")
    for end in range(1, len(parts)):
        sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    module = sys.modules[name] = types.ModuleType(name)
    setattr(sys.modules[".".join(parts[:-1])], parts[-1], module)
    exec(compile(source, name, "exec"), module.__dict__)
    return module

'''


def text(settings: t.Mapping[str, str]) -> str:
    """Return the script. Its modules are the collection's own: one rule decides what belongs to a cluster."""
    parts = [_HEAD.format(cluster=settings["cluster"])]
    for module in (client, ownership, teardown, expire):
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        if "'''" in source or "__file__" in source:
            raise ValueError(f"{module.__name__} cannot stand inside of another script")
        parts.append(f"_module({module.__name__!r}, r'''\n{source}''')\n")
    parts.append(f"sys.modules[{expire.__name__!r}].main({json.dumps(dict(settings), sort_keys=True)})\n")
    return "\n".join(parts)
