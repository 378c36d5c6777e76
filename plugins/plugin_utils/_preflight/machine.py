# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is the machine type known, and are the cluster's own variables spelt as they are read? Reads profiles; private."""

from __future__ import annotations

import difflib
import typing as t
from pathlib import Path

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._preflight.wording import one_of, say
from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._profiles import (
    GENERIC,
    ProfileError,
    alike,
    is_name,
    load,
)

# What playbooks and defaults of roles read beside the roles' own inputs; a test compares them.
VARIABLES = frozenset(
    "apex build_host containers driver driver_hosts health_check munge_key_file name profile_dir profiles scratch_dir"
    " mpi python shared_dir sku slurm user user_uid users".split()
)
EXISTING, CYCLECLOUD = "existing", "cyclecloud"
_SLURMS = ("ours", CYCLECLOUD, EXISTING)
_DRIVERS = (EXISTING, "ours")
_PREFIX = "cluster_"
_ALIKE = 0.75
_BEGUN = 5  # letters of a name that tell which one was meant
Inputs = t.Mapping[str, t.Any]


def machine_types(inputs: Inputs) -> list[str]:
    """Of a machine type without a profile nothing is expected, so that its nodes could never be certified."""
    problems = []
    skus = {host: known.get("sku") for host, known in (inputs.get("hosts") or {}).items() if known.get("sku")}
    nodes = [host for host in inputs.get("preflight_compute_hosts") or [] if host in skus]
    values = {str(skus[host]): host for host in reversed(nodes)}
    if inputs.get("cluster_sku"):
        values[str(inputs["cluster_sku"])] = ""
    site = Path(str(inputs["preflight_profile_dir"])) if inputs.get("preflight_profile_dir") else None
    for sku, host in values.items():
        problems += _sku_problems(f"cluster_sku of {host}" if host else "cluster_sku", sku, site, inputs)
    return problems


def _sku_problems(label: str, sku: str, site: Path | None, inputs: Inputs) -> list[str]:
    problem = "no such machine type, so that nothing would be expected of its nodes"
    wanted = inputs.get("preflight_allow_unknown_sku") or (inputs.get("certification_profile_overrides") or {}).get(
        "expect"
    )
    try:
        if not is_name(sku):
            problem = "no name of a machine type, which has letters, digits, '_', '.' and '-'"
        elif load(sku, site=site)["known"] or sku == GENERIC or wanted:
            return []
        close = alike(sku, site)
    except (ProfileError, OSError, UnicodeDecodeError) as exc:
        return [say(label, sku, line, "a profile that can be read") for line in str(exc).splitlines()]
    near = f"{' or '.join(close)}; " if close else ""
    name = sku.lower() if is_name(sku) else "NAME"
    own = f"{site}/{name}.yml" if site else f"profiles/{name}.yml beside the inventory"
    accepted = (
        f"{near}a machine type of docs/sku_profiles.md; a profile of your own, {own}, which draft_profile.yml writes "
        "from a sound node; or preflight_allow_unknown_sku: true, after which nodes cannot be certified"
    )
    return [say(label, sku, problem, accepted)]


def whose_slurm(inputs: Inputs) -> list[str]:
    """A slip here would leave the daemons of a new cluster unmade, or write over those of somebody else."""
    value = inputs.get("cluster_slurm", _SLURMS[0])
    return [] if value in _SLURMS else [say("cluster_slurm", value, "no kind of Slurm", one_of(_SLURMS))]


def whose_driver(inputs: Inputs) -> list[str]:
    """Return what is wrong with the word for who installs the GPU driver."""
    value = inputs.get("cluster_driver", EXISTING)
    return [] if value in _DRIVERS else [say("cluster_driver", value, "nobody who has the driver", one_of(_DRIVERS))]


def whose_python(inputs: Inputs) -> list[str]:
    """An interpreter that is there takes the place of an environment of ours, and nothing is built into it."""
    value = inputs.get("cluster_python")
    if not value:
        return []
    if not str(value).startswith("/"):
        return [say("cluster_python", value, "no interpreter that every node finds", "an absolute path")]
    # A word of the command line is a text, and stack.yml reads it as this does.
    apex = boolean(inputs.get("cluster_apex") or False, strict=False)
    built = [
        *(["cluster_apex"] if apex else []),
        *(["training_extras_list"] if inputs.get("training_extras_list") else []),
    ]
    problem = "packages are built into environments of role pytorch, and there is none beside a Python of your own"
    return [say(name, inputs[name], problem, f"none of it, or no cluster_python (it is {value!r})") for name in built]


def misspelt(inputs: Inputs) -> list[str]:
    """A variable of the cluster that nothing reads, and that is nearly one that something reads."""
    problems = []
    for name in sorted(name for name in inputs if name.startswith(_PREFIX)):
        rest = name[len(_PREFIX) :]
        begun = [
            variable for variable in sorted(VARIABLES) if len(rest) >= _BEGUN and variable.startswith(rest.lower())
        ]
        close = begun or difflib.get_close_matches(rest.lower(), VARIABLES, 1, _ALIKE)
        if rest not in VARIABLES and close and f"{_PREFIX}{close[0]}" not in inputs:
            problems.append(f"{name} is set, and nothing reads it; accepted: {_PREFIX}{close[0]}")
    return problems


OF_MADE_MACHINES = (whose_driver, whose_python, misspelt)
CHECKS = (machine_types, whose_slurm, *OF_MADE_MACHINES)
