# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a certification was asked to do: read once, and the same for whoever goes on with it. Pure, private."""

from __future__ import annotations

import hashlib
import json
import re
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._check import validate_expectation
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json, validate_seconds
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import environment
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.batch import ALLOCATION, ARRAY, RESERVED
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.fleet import Options

SCHEMA = 1
SPEC: dict[str, Json] = {
    "dir": {"type": "path", "required": True},
    "run": {"type": "str", "default": ""},
    "agent": {"type": "path", "required": True},
    "cluster": {"type": "str", "default": ""},
    "profile": {"type": "dict", "default": {}},
    "hosts": {"type": "str", "default": ""},
    "partition": {"type": "str", "default": ""},
    "reservation": {"type": "str", "default": ""},
    "nodes_at_once": {"type": "int", "default": 0},
    "options": {"type": "dict", "default": {}},
    "suite": {"type": "str", "default": "full", "choices": ["full", "boot", "periodic"]},
    "node": {"type": "dict", "default": {}},
    "tool": {"type": "str", "default": "auto", "choices": ["auto", "nccl", "torch"]},
    "gpus": {"type": "int"},
    "infiniband": {"type": "bool"},
    "nccl": {"type": "dict", "default": {}},
    "torch": {"type": "dict", "default": {}},
    "environment": {"type": "dict", "default": {}},
    "step_options": {"type": "dict", "default": {}},
    "sbatch_options": {"type": "dict", "default": {}},
    "interpreter": {"type": "path", "default": "/usr/bin/python3"},
    "timeout": {"type": "float", "default": 600.0},
    "suite_timeout": {"type": "float", "default": 1800.0},
    "wait": {"type": "float", "default": 120.0},
    "patience": {"type": "float", "default": 10.0},
    "hold": {"type": "float", "default": 20.0},
    "poll": {"type": "float", "default": 2.0},
    "keep": {"type": "int", "default": 0},
}
TORCH: Json = {"python": "python3", "backend": "gloo", "ranks_per_node": 1, "max_size": 67108864}
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_KEPT = (
    "sbatch_options",
    "step_options",
    "interpreter",
    "suite",
    "timeout",
    "suite_timeout",
    "wait",
    "patience",
    "hold",
    "poll",
)


class RequestError(ValueError):
    """The certification cannot be done as asked; the text is fit for the user."""


def validate(params: t.Mapping[str, t.Any]) -> None:
    """Refuse what makes no sense before anything runs."""
    if params["run"] and not _RUN.fullmatch(params["run"]):
        raise RequestError(
            f"run {params['run']!r}: letters, digits, dots, dashes and underscores are accepted, up to 64"
        )
    for name in ("timeout", "suite_timeout", "wait", "patience", "poll"):
        validate_seconds(name, params[name])
    validate_seconds("hold", params["hold"], 0)
    if params["nodes_at_once"] < 0 or (params["gpus"] or 0) < 0 or params["keep"] < 0:
        raise RequestError("nodes_at_once, gpus and keep must not be negative")
    for one in params["profile"].get("expect") or []:
        validate_expectation(one)
    environment(params["environment"])
    for name, known in (("torch", TORCH), ("options", Options._fields)):
        unknown = sorted(set(params[name]) - set(known))
        if unknown:
            raise RequestError(f"{name} has {', '.join(unknown)}; accepted are {', '.join(sorted(known))}")
    for key in params["sbatch_options"]:
        name = str(key).replace("_", "-")
        if name in RESERVED or not re.fullmatch(r"[a-z][a-z0-9-]+", name):
            raise RequestError(
                f"sbatch_options has {key!r}, which is no long option of sbatch or is set by this module"
            )


def how(params: t.Mapping[str, t.Any], array_size: int) -> Json:
    """Return how tests are run, as jobs and their steps are told it."""
    profile = params["profile"]
    gpus = int(_or(params["gpus"], (profile.get("gpu") or {}).get("count") or 0))
    ports = int((profile.get("infiniband") or {}).get("count") or 0)
    most = int(params["nodes_at_once"])
    tool = params["tool"] if params["tool"] != "auto" else "nccl" if gpus else "torch"
    # A machine type that has no GPUs here is asked for none.
    told = {**profile, "gpu": {**(profile.get("gpu") or {}), "count": gpus}} if profile else {}
    return {
        **{name: params[name] for name in _KEPT},
        "agent_path": params["agent"],
        "agent": {**params["node"], "profile": told},
        "profile": profile.get("profile"),
        "expect": profile.get("expect") or [],
        "tool": tool,
        "gpus": gpus,
        "infiniband": bool(_or(params["infiniband"], ports > 0)),
        "nccl": {**(profile.get("nccl") or {}), **params["nccl"]},
        "torch": {**TORCH, **params["torch"]},
        "environment": environment(params["environment"]),
        "partition": params["partition"],
        "reservation": params["reservation"],
        "at_once": most,
        "array": min(ARRAY, array_size, most or ARRAY),
        "allocation": min(ALLOCATION, most or ALLOCATION),
    }


def _or(value: t.Any, other: t.Any) -> t.Any:
    return other if value is None else value


def build(params: t.Mapping[str, t.Any], fleet: Json, others: t.Sequence[str], told: Json, digests: Json) -> Json:
    """Return the whole request; ``told`` is what how() made, digests those of agent and profile."""
    options = {"gpus_per_node": told["gpus"], **params["options"], "run": params["run"]}
    rounds = told["nccl"].get("tests") or {}
    if "collectives" not in params["options"] and rounds.get("collectives"):
        options["collectives"] = rounds["collectives"]
    return {
        "schema": SCHEMA,
        "run": params["run"],
        "fleet": fleet,
        "options": options,
        "others": list(others),
        "how": told,
        "digests": digests,
        "fingerprint": fingerprint(params, told),
    }


def fingerprint(params: t.Mapping[str, t.Any], told: Json) -> str:
    """Return what two requests for the same thing have in common; neither the nodes' state nor the agent is of it.

    A run keeps the agent that it began with.
    """
    about = {name: params[name] for name in ("cluster", "hosts", "partition", "options")}
    same = {key: value for key, value in told.items() if key not in ("agent_path", "poll", "array")}
    return digest({**about, "how": same})


def digest(value: t.Any) -> str:
    """Return the SHA-256 of a value as JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def new_name(moment: float, taken: t.Container[str]) -> str:
    """Return a name for a run by its time; two in one second are told apart."""
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(moment))
    return next(one for one in (name, *(f"{name}-{n}" for n in range(1, 1000))) if one not in taken)
