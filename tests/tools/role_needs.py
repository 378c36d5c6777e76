# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw what a required input says while nobody gives it: ``python tests/tools/role_needs.py [ROLE ...]``.

An input without a value fails as "'slurm_controller_hosts' is undefined", and Ansible's own check of required arguments
names inputs without saying what they are for. So defaults/main.yml gives each required input, and each name of the
cluster that other defaults stand on, an undefined value that says what it is for. For ``is defined`` and ``default()``
it is as if it were not there. The text is drawn from meta/argument_specs.yml.
"""

from __future__ import annotations

import re
import sys
import textwrap
import typing as t
from pathlib import Path

from role_readmes import MARKUP, ROLES, load

BEGIN = "# What has to be given; drawn from meta/argument_specs.yml by make docs."
END = "# What has a value."
BETWEEN = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}\n", re.DOTALL)
GIVE = (
    "Give {} as a variable of the inventory, of the play or of the task that calls the role, not among another role's"
    " defaults; the README has an example."
)
CLUSTER = {
    "cluster_name": "name of the cluster",
    "cluster_sku": "machine type of the nodes, such as ND96isr_H100_v5",
    "cluster_shared_dir": "directory that all nodes share",
    "cluster_scratch_dir": "directory on the local disks of each node",
    "cluster_user": "user who trains",
}
# Where it is the beginning of an expression or a part of a text, and nothing else stands in for it.
USED = re.compile(rf"(?:\{{\{{|else|\bor) *({'|'.join(CLUSTER)})\b(?! *\| *default| is defined)")
OPTIONAL = re.compile(rf"({'|'.join(CLUSTER)}) is defined")


def sentence(description: str | t.Sequence[str]) -> str:
    """The first sentence of a description, as plain text that may stand in a template's double quotes."""
    text = description if isinstance(description, str) else description[0]
    text = MARKUP.sub(lambda match: match[2].partition("#")[0].replace("\\", ""), " ".join(text.split()))
    return re.split(r"(?<=[\w)])\. ", text)[0].rstrip(".").replace('"', "'")


def cluster_names(role: Path) -> dict[str, list[str]]:
    """The cluster's names that the role cannot do without, and which of its inputs would do in their place."""
    needed: dict[str, list[str]] = {}
    values = {place: load(role / place / "main.yml") for place in ("defaults", "vars")}
    optional = OPTIONAL.findall(str(values["defaults"]))
    for place, entries in values.items():
        for name, value in entries.items():
            for used in [] if name in CLUSTER else sorted(set(USED.findall(str(value))) - set(optional)):
                needed.setdefault(used, []).append(name if place == "defaults" else "")
    return needed


def required(role: Path) -> list[dict[str, t.Any]]:
    """The required inputs of each entry point, beyond those of the entry points before."""
    known: set[str] = set()
    specs = load(role / "meta/argument_specs.yml")["argument_specs"].values()
    found = []
    for spec in specs:
        options = {
            name: option
            for name, option in (spec.get("options") or {}).items()
            if option.get("required") and name not in known
        }
        known |= set(options)
        found += [options] if options else []
    return found


def give(count: int) -> str:
    return GIVE.format("each" if count > 1 else "it")


def drawn_value(text: str) -> list[str]:
    lines = textwrap.wrap(f'{{{{ undef(hint="{text}") }}}}', 120, break_long_words=False, break_on_hyphens=False)
    return [f"  {line}" for line in lines]


def block(role: Path) -> list[str]:
    """The lines between the markers; none if the role needs nothing."""
    lines: list[str] = []
    for number, options in enumerate(required(role)):
        each = "; ".join(f"{name} ({sentence(option['description'])})" for name, option in options.items())
        first, *others = options
        anchor = f"needs{number or ''}"
        lines += [f"{first}: &{anchor} >-" if others else f"{first}: >-"]
        lines += drawn_value(f"Role {role.name} needs {each}. {give(len(options))}")
        lines += [f"{name}: *{anchor}" for name in others]
    for name, inputs in sorted(cluster_names(role).items()):
        instead = f", or {' and '.join(inputs)} in its place" if all(inputs) else ""
        lines += [f"{name}: >- # noqa: var-naming[no-role-prefix]"]
        lines += drawn_value(f"Role {role.name} needs {name} ({CLUSTER[name]}){instead}. {give(1)}")
    return lines


def render(role: Path) -> str:
    """defaults/main.yml as it should be."""
    path = role / "defaults/main.yml"
    text = path.read_text(encoding="utf-8") if path.exists() else "---\n"
    rest = BETWEEN.sub("", text)
    lines = block(role)
    if not lines:
        return rest if path.exists() else ""
    return rest.replace("---\n", "\n".join(["---", BEGIN, *lines, END, ""]), 1)


def main(names: t.Sequence[str]) -> int:
    for role in [role for role in ROLES if role.name in names or not names]:
        text = render(role)
        if text:
            (role / "defaults/main.yml").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
