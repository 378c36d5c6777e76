# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does gres.conf offer what the nodes are said to have? A node that offers less is drained by Slurm. Reads
profiles; private."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, expand
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight.wording import say, slip
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import GENERIC, ProfileError, load

_VARIABLE = "slurm_gres"
_KEYS = "autodetect cores count file flags links multiplefiles name nodename nodes type".split()
Inputs = t.Mapping[str, t.Any]
Entry = t.Mapping[str, t.Any]


def matching(inputs: Inputs) -> list[str]:
    """Return what is wrong with the generic resources, and which nodes claim some that are not offered there."""
    entries = [{str(key).lower(): item for key, item in entry.items()} for entry in inputs.get(_VARIABLE) or []]
    problems = [
        say(_VARIABLE, entry, "has no name", "name: gpu and the like") for entry in entries if not _named(entry)
    ]
    for key in sorted({key for entry in entries for key in entry if slip(key, _KEYS)}):
        problems.append(say(_VARIABLE, key, "no field of gres.conf", slip(key, _KEYS)))
    offers = [entry for entry in entries if _named(entry)]
    for host in inputs.get("preflight_compute_hosts") or []:
        known = inputs.get("hosts", {}).get(host, {})
        override = known.get("slurm_node") or {}
        here: list[Entry] = [entry for entry in offers if _on(entry, {host, known.get("node")})]
        if _VARIABLE not in inputs:
            here = _of_machine_type(str(known.get("sku") or inputs.get("cluster_sku") or GENERIC), inputs)
        for claim in filter(None, str(override.get("gres") or "").split(",") if isinstance(override, dict) else []):
            problem = _short(claim, here)
            if problem:
                accepted = "what slurm_gres offers there, such as {name: gpu, type: a100, file: '/dev/nvidia[0-7]'}"
                problems.append(say(f"slurm_node.gres of {host}", claim, problem, accepted))
    return problems


def _of_machine_type(sku: str, inputs: Inputs) -> list[Entry]:
    """What the role slurm writes where the inventory says nothing; a profile that cannot be read is said elsewhere."""
    site = Path(str(inputs["preflight_profile_dir"])) if inputs.get("preflight_profile_dir") else None
    try:
        return list((load(sku, site=site).get("slurm") or {}).get("gres_conf") or [])
    except (ProfileError, OSError, UnicodeDecodeError):
        return []


def _named(entry: Entry) -> bool:
    return bool(entry.get("name") or entry.get("autodetect"))


def _on(entry: Entry, names: set[t.Any]) -> bool:
    nodes = entry.get("nodes") or entry.get("nodename") or []
    texts = [nodes] if isinstance(nodes, str) else nodes
    try:
        return not texts or bool(names & {name for text in texts for name in expand(str(text))})
    except HostlistError:
        return False


def _short(claim: str, offers: t.Sequence[Entry]) -> str:
    """What the offers lack of a claim such as ``gpu:a100:8``; nothing if the machine is asked by AutoDetect."""
    words = claim.split("(")[0].split(":")
    name, count = words[0], words[-1] if len(words) > 1 and words[-1][:1].isdigit() else "1"
    kind = words[1] if len(words) > 1 and not words[1][:1].isdigit() else ""
    if any(entry.get("autodetect") for entry in offers):
        return ""
    same = [entry for entry in offers if entry.get("name") == name and (not kind or entry.get("type", kind) == kind)]
    if not same:
        return f"slurm_gres has no {name}{f' of type {kind}' if kind else ''} there"
    if name == "gpu" and not all(entry.get("file") for entry in same):
        return "slurm_gres names no file for it, and slurmd counts GPUs by their files"
    try:
        have = sum(_count(entry) for entry in same)
    except HostlistError as exc:
        return f"slurm_gres: {exc}"
    return f"slurm_gres offers {have} there" if count.isdigit() and have < int(count) else ""


def _count(entry: Entry) -> int:
    files = entry.get("file") or []
    if files:
        return sum(len(expand(str(text))) for text in ([files] if isinstance(files, str) else files))
    count = str(entry.get("count") or 1)
    return int(count) if count.isdigit() else 1 << 62  # 10G and the like: Slurm's to compare


CHECKS = (matching,)
