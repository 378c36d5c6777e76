# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a site may write into a profile: names, types and units of every value. No I/O; private.

The shipped profiles satisfy it, too. ``null`` is accepted everywhere, since it takes away what a base says.
"""

from __future__ import annotations

import difflib
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import CheckError, validate_expectation
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profile_metrics import CHECKS, unit_problem

_OWN = ("check", "metric", "op", "value", "unit", "source", "nodes", "min_nodes", "verdict")
_KINDS: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "whole number from 0": (int,),
    "number from 0": (int, float),
    "mapping": (dict,),
    "list of mappings": (list,),
    "list of text": (list,),
    "list of text, or text": (list, str),
    "number or text": (int, float, str),
}
_WHOLE, _NUMBER, _TEXT, _TEXTS = "whole number from 0", "number from 0", "text", "list of text"
# A mapping in place of a type says which keys there may be; the key "*" stands for any.
_SCHEMA: dict[str, t.Any] = {
    "base": "list of text, or text",
    "description": _TEXT,
    "vm_size": _TEXT,
    "vcpus": _WHOLE,
    "numa_nodes": _WHOLE,
    "threads_per_core": _WHOLE,
    "gpu": {
        "model": _TEXT,
        "count": _WHOLE,
        "memory_mib": _WHOLE,
        "compute_capability": _TEXT,
        "max_clocks": {"graphics": _WHOLE, "memory": _WHOLE},
    },
    "topology": {
        "cpu": {"arch": _TEXT, "vendor": _TEXT, "family": _WHOLE, "model": _WHOLE},
        "link": {"speed": _TEXT, "width": _WHOLE},
        "bridge": ("gpu", "none", "numa_node"),
        "gpus": [{"pci_domain": _TEXT, "numa_node": _WHOLE, "nic": _TEXT}],
    },
    "infiniband": {"count": _WHOLE, "rate_gbps": _NUMBER, "devices": _TEXTS, "pci_domains": _TEXTS},
    "nvme": {
        "count": _WHOLE,
        "size_gb": _NUMBER,
        "controller": "list of text, or text",
        "fewer": ("allow", "refuse"),
    },
    "node": {
        "sysctl": {"*": "number or text"},
        "transparent_hugepages": ("always", "madvise", "never"),
        "services": _TEXTS,
        "kernel_modules": _TEXTS,
    },
    "nccl": {
        "topology_file": _TEXT,
        "conf": {"*": _TEXT},
        "environment": {"*": _TEXT},
        "tests": {"collectives": _TEXTS, "min_size": _WHOLE, "max_size": _WHOLE, "factor": _WHOLE},
    },
    "slurm": {
        "gres": _TEXT,
        "node": {"sockets": _WHOLE, "cores_per_socket": _WHOLE, "threads_per_core": _WHOLE},
        "slurmd_parameters": _TEXTS,
        "gres_conf": [{"name": _TEXT, "type": _TEXT, "file": _TEXT, "cores": _TEXT}],
    },
    "expect": "list of mappings",
    "reference": "list of mappings",
}


def near(name: str, known: t.Iterable[str], cutoff: float = 0.6) -> list[str]:
    """Return up to three names that were probably meant, the nearest first; ``-``, ``_``, ``.`` and blanks are one."""
    squeezed: dict[str, str] = {plain(word): word for word in sorted(known)}
    return [squeezed[word] for word in difflib.get_close_matches(plain(name), squeezed, 3, cutoff)]


def plain(name: str) -> str:
    """Return a name as it is compared."""
    return re.sub(r"[-_. ]", "", name.lower())


def problems(profile: t.Mapping[str, t.Any]) -> list[str]:
    """Return a sentence for each value that cannot be used: its path, what it is, and what is accepted."""
    texts = list(_mapping("", profile, _SCHEMA))
    for name in ("expect", "reference"):
        entries = profile.get(name)
        for number, entry in enumerate(entries if isinstance(entries, list) else []):
            texts += [f"{name}[{number}]: {text}" for text in _expectation(entry)]
    return texts


def _mapping(path: str, value: t.Mapping[t.Any, t.Any], schema: t.Mapping[str, t.Any]) -> t.Iterator[str]:
    for key, item in value.items():
        where = f"{path}.{key}" if path else str(key)
        kind = schema.get(key, schema.get("*"))
        if kind is None:
            close = near(str(key), schema)
            yield f"{where} is no name of a profile; {_accepted(close, schema)}"
        elif item is not None:
            yield from _value(where, item, kind)


def _accepted(close: t.Sequence[str], known: t.Iterable[str]) -> str:
    return f"{' or '.join(close)} was probably meant" if close else f"accepted are {', '.join(sorted(known))}"


def _value(path: str, value: t.Any, kind: t.Any) -> t.Iterator[str]:
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            yield f"{path} is {value!r}; accepted is a mapping with {', '.join(sorted(kind))}"
        else:
            yield from _mapping(path, value, kind)
    elif isinstance(kind, list):
        if not isinstance(value, list):
            yield f"{path} is {value!r}; accepted is a list of mappings"
        else:
            for number, item in enumerate(value):
                yield from _value(f"{path}[{number}]", item, kind[0])
    elif isinstance(kind, tuple):
        if value not in kind:
            yield f"{path} is {value!r}; accepted are {', '.join(kind)}"
    elif not _fits(value, kind):
        yield f"{path} is {value!r}; accepted is a {kind}{_hint(value, kind)}"


def _fits(value: t.Any, kind: str) -> bool:
    if isinstance(value, bool) or not isinstance(value, _KINDS[kind]):
        return False
    if isinstance(value, list):
        return all(isinstance(item, str if "text" in kind else dict) for item in value)
    return not isinstance(value, (int, float)) or value >= 0


def _hint(value: t.Any, kind: str) -> str:
    return f', in quotes: "{value}"' if kind == _TEXT and isinstance(value, (int, float)) else ""


def _expectation(entry: t.Any) -> t.Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{entry!r} is no mapping with {', '.join(_OWN[:6])}"
        return
    check, metric = str(entry.get("check")), str(entry.get("metric"))
    known = CHECKS.get(check)
    if known is None:
        yield f"check is {check!r}, which nothing measures; {_accepted(near(check, CHECKS), CHECKS)}"
        return
    if metric not in known.metrics:
        meant = _accepted(near(metric, known.metrics), known.metrics)
        yield f"metric is {metric!r}, which {check} does not have; {meant}"
        return
    accepted = [*_OWN, *(name for name in known.metrics[metric].labels.split(", ") if name)]
    for key in entry:
        if key not in accepted:
            yield f"{key} says nothing about {check} {metric}; {_accepted(near(str(key), accepted), accepted)}"
    if "value" in entry and entry["value"] is None:
        return
    try:
        validate_expectation(entry)
    except CheckError as exc:
        yield str(exc)
        return
    if unit_problem(entry):
        yield unit_problem(entry)
