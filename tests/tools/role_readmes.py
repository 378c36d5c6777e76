# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draw the table of inputs in every role's README: ``.build/venv/bin/python tests/tools/role_readmes.py [ROLE ...]``.

The table is drawn from meta/argument_specs.yml. Where that states no default, defaults/main.yml has the default. What a
task hands to a module as ``default(omit)`` has no default of the role: the module's own is shown.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
import typing as t
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
# The collection's, and those of the rehearsal.
ROLES = sorted(meta.parents[1] for place in (ROOT, ROOT / "lab") for meta in place.glob("roles/*/meta/main.yml"))
BEGIN = "<!-- inputs: drawn from meta/argument_specs.yml by make docs -->"
END = "<!-- end of inputs -->"
BETWEEN = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)
# Ansible's markup: the argument of C(), V(), O(), RV(), E(), M() and P() may hold an escaped parenthesis.
MARKUP = re.compile(r"\b(C|V|O|RV|E|M|P|I|B|U|L|R)\(((?:[^\\)]|\\.)*)\)")
LONGEST_DEFAULT = 160
# An input as a task hands it to an option: as it is, or left to the module.
HANDED = re.compile(r"{{ (\w+)( \| (int|bool|float|default\((__\w+ or )?omit\)))? }}")
# All of a module's arguments, where several tasks of a role are handed the same.
WHOLE = re.compile(r"{{ (__\w+) }}")
# A template that says what it is: one variable, with text around it.
SIMPLE = re.compile(r"[^{}]*\{\{ *\w+ *\}\}[^{}]*")
Option = t.Mapping[str, t.Any]
Options = t.Mapping[str, Option]


class NoTable(Exception):
    """A README has no markers to draw a table between."""


def markdown(text: str) -> str:
    """Translate Ansible's markup to Markdown that may stand in a cell of a table."""

    def replace(match: re.Match[str]) -> str:
        kind, argument = match[1], re.sub(r"\\(.)", r"\1", match[2])
        if kind == "I":
            return f"*{argument}*"
        if kind == "B":
            return f"**{argument}**"
        if kind == "U":
            return f"<{argument}>"
        if kind == "L":
            label, dummy, url = argument.rpartition(",")
            return f"[{label.strip()}]({url.strip()})"
        if kind == "R":
            return argument.partition(",")[0].strip()
        return f"`{argument.partition('#')[0] if kind == 'P' else argument}`"

    return MARKUP.sub(replace, " ".join(text.split())).replace("|", "\\|")


def literal(value: t.Any) -> str:
    """Write a value as YAML in a line of code."""
    if isinstance(value, str):
        plain = value if _plain(value) else json.dumps(value, ensure_ascii=False)
    else:
        plain = (
            yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False).removesuffix("...\n").strip()
        )
    return f"`{plain}`".replace("|", "\\|")


def _plain(text: str) -> bool:
    """Return whether YAML reads a text as itself without quotes. Templates are shown without them, too."""
    try:
        return bool(text) and ("{{" in text or yaml.safe_load(text) == text)
    except yaml.YAMLError:
        return False


def default(option: Option, otherwise: t.Any = None) -> str:
    """The cell of the default; ``otherwise`` is what defaults/main.yml says."""
    if option.get("required"):
        return "required"
    value = option.get("default", otherwise)
    if value is None:
        return "none"
    if "{{" in json.dumps(value) and not (isinstance(value, str) and SIMPLE.fullmatch(value)):
        return "[computed](defaults/main.yml)"
    cell = literal(value)
    return cell if len(cell) <= LONGEST_DEFAULT else "[see defaults](defaults/main.yml)"


def kind(option: Option) -> str:
    return f"list of {option['elements']}" if option.get("elements") else option["type"]


def meaning(option: Option) -> str:
    description = option["description"]
    text = " ".join(markdown(part) for part in ([description] if isinstance(description, str) else description))
    if option.get("choices"):
        one = "Each is one" if option.get("elements") else "One"
        text += f" {one} of {', '.join(literal(choice) for choice in option['choices'])}."
    return text


@functools.lru_cache(maxsize=None)
def module_options(module: str) -> Options:
    """The documented options of a module of ours, which sanity tests hold against its argument spec."""
    path = ROOT / f"plugins/modules/{module}.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else []:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DOCUMENTATION":
            options: Options = yaml.safe_load(ast.literal_eval(node.value)).get("options") or {}
            return options
    return {}


class Handed(t.NamedTuple):
    """An input that a task hands to an option of a module of ours."""

    name: str
    option: Option
    is_left: bool  # the module's default holds where the input is not given


def _handed(tasks: t.Any, variables: t.Mapping[str, t.Any]) -> t.Iterator[Handed]:
    if isinstance(tasks, list):
        for task in tasks:
            yield from _handed(task, variables)
    elif isinstance(tasks, dict):
        for key, value in tasks.items():
            known = module_options(key.rpartition(".")[2]) if key.startswith("hpcai.gpu_cluster.") else {}
            if known and (whole := WHOLE.fullmatch(str(value))):
                value = variables[whole[1]]
            for option in sorted(set(known) & set(value if isinstance(value, dict) else ())):
                match = HANDED.fullmatch(str(value[option]))
                if match:
                    yield Handed(match[1], known[option], "omit" in str(match[2]))
            if not known:
                yield from _handed(value, variables)


def handed(role: Path) -> list[Handed]:
    """Each input of a role that one of its tasks hands to an option, with that option."""
    variables = load(role / "vars/main.yml")
    return [entry for path in sorted(role.glob("tasks/*.yml")) for entry in _handed(load(path), variables)]


def left_to_modules(role: Path) -> dict[str, Option]:
    """The inputs of a role that have no default but their module's, with its option."""
    return {entry.name: entry.option for entry in handed(role) if entry.is_left and "default" in entry.option}


def rows(
    options: Options, defaults: t.Mapping[str, t.Any], left: Options | None = None, parent: str = ""
) -> t.Iterator[str]:
    for name, option in options.items():
        cell = default((left or {}).get(name, option), defaults.get(name))
        cells = [f"`{parent}{name}`", kind(option), cell, meaning(option)]
        yield f"| {' | '.join(cells)} |"
        if option.get("options"):
            yield from rows(option["options"], {}, None, f"{parent}{name}{'[]' if option.get('elements') else ''}.")


def table(options: Options, defaults: t.Mapping[str, t.Any], left: Options) -> list[str]:
    return ["| Name | Type | Default | Meaning |", "| --- | --- | --- | --- |", *rows(options, defaults, left)]


def entry_points(specs: t.Mapping[str, t.Any], defaults: t.Mapping[str, t.Any], left: Options) -> list[str]:
    """The table of the first entry point, and below it what each of the others takes besides."""
    (dummy, first), *others = specs.items()
    known: Options = first.get("options") or {}
    lines = table(known, defaults, left) if known else ["The role takes no inputs."]
    for name, spec in others:
        options: Options = spec.get("options") or {}
        new = {option: value for option, value in options.items() if option not in known}
        shared = [f"`{option}`" for option in options if option in known]
        taken = "the inputs above" if len(shared) == len(known) else ", ".join(shared)
        besides = f" It takes {taken}{', and:' if new else '.'}" if shared else ""
        lines += ["", f"`tasks_from: {name}`: {markdown(spec['short_description']).rstrip('.')}.{besides}", ""]
        lines += table(new, defaults, left) if new else []
        known = {**known, **new}
    return lines


def load(path: Path) -> dict[str, t.Any]:
    return (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.exists() else {}


def inputs(role: Path) -> str:
    """Everything between the markers."""
    specs = load(role / "meta/argument_specs.yml")["argument_specs"]
    lines = "\n".join(entry_points(specs, load(role / "defaults/main.yml"), left_to_modules(role))).strip()
    return re.sub(r"\n{3,}", "\n\n", lines)


def render(role: Path) -> str:
    """The README as it should be."""
    page = (role / "README.md").read_text(encoding="utf-8")
    if not BETWEEN.search(page):
        raise NoTable(
            f"{role.relative_to(ROOT)}/README.md has no lines {BEGIN} and {END} to draw the table of inputs between."
        )
    drawn = f"{BEGIN}\n\n{inputs(role)}\n\n{END}"
    return BETWEEN.sub(lambda _match: drawn, page)


def main(names: t.Sequence[str]) -> int:
    missing = 0
    for role in [role for role in ROLES if role.name in names or not names]:
        try:
            (role / "README.md").write_text(render(role), encoding="utf-8")
        except NoTable as exc:
            print(exc, file=sys.stderr)
            missing = 1
    return missing


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
