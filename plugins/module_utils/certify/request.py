# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of the module certification, validated and read once, and the request that a run is continued with."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import (
    Json,
    validate_expectation,
    validate_seconds,
)
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import environment
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.fleet import CampaignOptions
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.jobs import ALLOCATION, ARRAY, RESERVED

SCHEMA = 1
SPEC: dict[str, Json] = {
    "dir": {"type": "path", "required": True},
    "run": {"type": "str", "default": ""},
    "agent": {"type": "path", "required": True},
    "cluster": {"type": "str", "default": ""},
    "profile": {"type": "dict", "default": {}},
    "hosts": {"type": "str", "default": ""},
    "topology": {"type": "list", "elements": "dict", "default": []},
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
_OF_TESTS = (
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
_AS_GIVEN = ("run", "keep", "cluster", "profile", "hosts", "topology", "partition", "reservation", "options")


class CampaignRequestError(ValueError):
    """The certification cannot be done as requested; the text is fit for the user."""


@dataclass(frozen=True)
class CertificationRequest:
    """What is certified and where its run is kept; ``tests`` is how tests are run, as the files of jobs have it."""

    base: Path
    agent: Path
    run: str
    keep: int
    cluster: str
    profile: Json
    hosts: str
    topology: t.Sequence[Json]
    partition: str
    reservation: str
    options: Json
    tests: Json

    def settings(self, array_size: int, longest: t.Any = None) -> Json:
        """Return how tests are run within Slurm's limits: tasks of an array, seconds of a job in its partition."""
        limits = {"array": min(self.tests["array"], array_size), "longest": longest}
        return {**self.tests, **limits}

    def fingerprint(self, settings: Json) -> str:
        """Return a digest that two requests for the same run share; the nodes' state and the agent are no part of it.

        A run keeps the agent that it began with.
        """
        same = {key: value for key, value in settings.items() if key not in ("agent_path", "poll", "array")}
        about = {"cluster": self.cluster, "hosts": self.hosts, "partition": self.partition, "options": self.options}
        return _digest({**about, "how": same})

    def saved(self, run: str, nodes: t.Sequence[Json], others: t.Sequence[str], settings: Json) -> Json:
        """Return the request as its run's directory keeps it, for each process that continues the run."""
        options = {"gpus_per_node": settings["gpus"], **self.options, "run": run}
        measured = (settings["nccl"].get("tests") or {}).get("collectives")
        if measured:
            options.setdefault("collectives", measured)
        return {
            "schema": SCHEMA,
            "run": run,
            "fleet": {"cluster": self.cluster, "profile": self.profile, "nodes": list(nodes)},
            "options": options,
            "others": list(others),
            "how": {**settings, "agent_path": str(self.base / run / "agent.pyz")},
            "digests": {"profile_sha256": _digest(self.profile)},
            "fingerprint": self.fingerprint(settings),
        }


def _digest(value: t.Any) -> str:
    """Return the SHA-256 of a value as JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def read_request(params: t.Mapping[str, t.Any]) -> CertificationRequest:
    """Return the request; what makes no sense is refused before anything runs."""
    _validate(params)
    return CertificationRequest(
        base=Path(params["dir"]),
        agent=Path(params["agent"]),
        tests=_tests(params, environment(params["environment"])),
        **{name: params[name] for name in _AS_GIVEN},
    )


def _validate(params: t.Mapping[str, t.Any]) -> None:
    if params["run"] and not _RUN.fullmatch(params["run"]):
        raise CampaignRequestError(
            f"run {params['run']!r}: letters, digits, dots, dashes and underscores are accepted, up to 64"
        )
    for name in ("timeout", "suite_timeout", "wait", "patience", "poll"):
        validate_seconds(name, params[name])
    validate_seconds("hold", params["hold"], 0)
    if params["nodes_at_once"] < 0 or (params["gpus"] or 0) < 0 or params["keep"] < 0:
        raise CampaignRequestError("nodes_at_once, gpus and keep must not be negative")
    for expectation in params["profile"].get("expect") or []:
        validate_expectation(expectation)
    for name, known in (("torch", TORCH), ("options", CampaignOptions._fields)):
        unknown = sorted(set(params[name]) - set(known))
        if unknown:
            raise CampaignRequestError(f"{name} has {', '.join(unknown)}; accepted are {', '.join(sorted(known))}")
    for key in params["sbatch_options"]:
        name = str(key).replace("_", "-")
        if name in RESERVED or not re.fullmatch(r"[a-z][a-z0-9-]+", name):
            raise CampaignRequestError(
                f"sbatch_options has {key!r}, which is no long option of sbatch or is set by this module"
            )


def _tests(params: t.Mapping[str, t.Any], variables: t.Mapping[str, str]) -> Json:
    """Return how tests are run, whatever Slurm allows."""
    profile = params["profile"]
    gpus = int(_given(params["gpus"], (profile.get("gpu") or {}).get("count") or 0))
    ports = int((profile.get("infiniband") or {}).get("count") or 0)
    most = int(params["nodes_at_once"])
    tool = params["tool"] if params["tool"] != "auto" else "nccl" if gpus else "torch"
    # The suite expects as many GPUs as the tests use: none, where the request says so.
    node_profile = {**profile, "gpu": {**(profile.get("gpu") or {}), "count": gpus}} if profile else {}
    return {
        **{name: params[name] for name in _OF_TESTS},
        "agent": {**params["node"], "profile": node_profile},
        "profile": profile.get("profile"),
        "expect": profile.get("expect") or [],
        "tool": tool,
        "gpus": gpus,
        "infiniband": bool(_given(params["infiniband"], ports > 0)),
        "nccl": {**(profile.get("nccl") or {}), **params["nccl"]},
        "torch": {**TORCH, **params["torch"]},
        "environment": dict(variables),
        "partition": params["partition"],
        "reservation": params["reservation"],
        "at_once": most,
        "array": min(ARRAY, most or ARRAY),
        "allocation": min(ALLOCATION, most or ALLOCATION),
    }


def _given(value: t.Any, default: t.Any) -> t.Any:
    return default if value is None else value
