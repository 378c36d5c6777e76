# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a page shows can be typed: YAML, Python and settings parse, and what commands name is there.

That is playbooks, plugins, variables and options, targets of make and their variables, scenarios, files of this tree.
"""

from __future__ import annotations

import ast
import configparser
import functools
import re
import shlex
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import role_readmes
import yaml

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import registry

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = ("*.md", "docs/*.md", "docs/howto/*.md", "roles/*/README.md", "lab/*.md", "lab/roles/*/README.md")
PATTERNS += ("inventories/*/README.md", "site_template/README.md", "benchmarks/*.md", "tests/**/*.md")
PAGES = sorted(str(path.relative_to(ROOT)) for pattern in PATTERNS for path in ROOT.glob(pattern))
# What a block of a page may hold, and who looks at it here. Plain blocks are pictures and output.
KINDS = {"console", "yaml", "python", "ini", "bash"}
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
OWN = re.compile(r"hpcai\.gpu_cluster\.(\w+)")
# A file of this tree, in a command that is typed at its root.
HERE = re.compile(
    r"(?!inventories/mine)(?:benchmarks|docs|extensions|inventories|lab|playbooks|plugins|requirements|roles|tests)/[\w./-]+"
)
# Of the shell, and of what is shown of other programs' files.
PLACEHOLDER = re.compile(r"…|\.\.\.|^<")


class Loader(yaml.SafeLoader):
    """YAML of Ansible: a vault's value is text."""


Loader.add_constructor("!vault", lambda loader, node: loader.construct_scalar(node))
Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def blocks(page: str, *kinds: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = FENCE.findall(text)
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, kind, block in found if kind in kinds]


def commands(page: str) -> list[str]:
    """The lines behind a prompt, joined with those that they go on in."""
    found = []
    for block in blocks(page, "console"):
        lines = iter(block.replace("\\\n", " ").splitlines())
        found += [line[2:].strip() for line in lines if line.startswith(("$ ", "# "))]
    return found


@functools.cache
def plugins() -> set[str]:
    kinds = ("modules", "filter", "lookup", "inventory", "callback", "action")
    files = [path for kind in kinds for path in (ROOT / "plugins" / kind).glob("*.*")]
    named = {path.stem for path in [*files, *(ROOT / "playbooks").glob("*.yml")]}
    groups = yaml.safe_load((ROOT / "meta/runtime.yml").read_text(encoding="utf-8"))["action_groups"]
    return named | {path.name for path in (ROOT / "roles").iterdir()} | set(groups)


@functools.cache
def inputs() -> set[str]:
    """The inputs of all roles, and what playbooks read themselves."""
    specs = [role_readmes.load(path / "meta/argument_specs.yml")["argument_specs"] for path in role_readmes.ROLES]
    names = {name for one in specs for spec in one.values() for name in spec.get("options") or {}}
    for folder in ("playbooks", "roles", "site_template", "inventories", "lab", "plugins"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".yml", ".j2", ".py") and "README" not in path.name:
                names.update(re.findall(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b", path.read_text(encoding="utf-8")))
    return names


@functools.cache
def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@functools.cache
def variables() -> set[str]:
    """The variables that a call of make may set: all that the Makefile reads."""
    return set(re.findall(r"\$\(?([A-Z_]+)\b", (ROOT / "Makefile").read_text(encoding="utf-8")))


@functools.cache
def options() -> set[str]:
    """The options of ansible-playbook, as it lists them."""
    words = [sys.executable, "-m", "ansible.cli.playbook", "--help"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?<![\w-])(--?[a-zA-Z][a-z-]*)", shown))


def keys(value: t.Any) -> t.Iterator[str]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield str(key)
            yield from keys(below)
    elif isinstance(value, list):
        for below in value:
            yield from keys(below)


@pytest.mark.parametrize("page", PAGES)
def test_yaml_parses_and_names_what_is_there(page: str) -> None:
    for block in blocks(page, "yaml"):
        document = list(yaml.load_all(block, Loader))
        unknown = {name for name in OWN.findall(block) if name not in plugins()}
        assert not unknown, f"{page} names {unknown}"
        owned = {path.name for path in role_readmes.ROLES}
        for key in keys(document):
            owner = max((name for name in owned if key.startswith(f"{name}_")), key=len, default="")
            assert not owner or key in inputs(), f"{page} sets {key}, which the role {owner} does not have"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")])
def test_commands_can_be_typed(page: str) -> None:
    for line in commands(page):
        words = [word for word in shlex.split(line, comments=True) if word not in ("&&", "||", "|", ";")]
        if "ansible-playbook" in words:
            playbook(page, words[words.index("ansible-playbook") + 1 :])
        if words[:1] == ["make"]:
            wanted = [word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]*", word)]
            named = wanted[: wanted.index("make")] if "make" in wanted else wanted[:1]
            assert set(named) <= targets(), f"{page}: {line}"
            given = {word.split("=")[0] for word in words[1:] if re.match(r"[A-Z_]+=", word)}
            assert given <= variables(), f"{page}: {line}"
        elif "cd" not in words:
            roots = (ROOT, ROOT / Path(page).parent)
            gone = [
                word for word in words if HERE.fullmatch(word) and not any((root / word).exists() for root in roots)
            ]
            assert not gone, f"{page}: {line}"
        unknown = [name for name in OWN.findall(line) if name not in plugins()]
        assert not unknown, f"{page}: {line}"
        if "--scenario-name" in words:
            assert (ROOT / "extensions/molecule" / words[words.index("--scenario-name") + 1]).is_dir(), (
                f"{page}: {line}"
            )
        shell(page, line)


def shell(page: str, text: str) -> None:
    """Have a shell read it, without what stands for something of the reader's."""
    plain = re.sub(r"<[\w ./-]+>|…", "x", text)
    done = subprocess.run(["bash", "-n", "-c", plain], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{page}: {text}: {done.stderr}"


@pytest.mark.parametrize("page", PAGES)
def test_other_blocks_parse(page: str) -> None:
    kinds = {kind for dummy, kind, block in FENCE.findall((ROOT / page).read_text(encoding="utf-8"))}
    assert kinds <= KINDS, f"{page} has blocks that nobody checks: {kinds - KINDS}"
    for block in blocks(page, "python"):
        ast.parse(block, page)
    for block in blocks(page, "ini"):
        configparser.ConfigParser(interpolation=None, allow_no_value=True).read_string(block)
    for block in blocks(page, "bash"):
        shell(page, block)


def playbook(page: str, words: list[str]) -> None:
    """Look at the names and options of one call."""
    for number, word in enumerate(words):
        if PLACEHOLDER.search(word):
            continue
        option = word.split("=")[0]
        if re.fullmatch(r"--?[a-zA-Z][a-z-]*", option):
            assert option in options(), f"{page}: ansible-playbook has no {option}"
        for name in OWN.findall(word):
            assert name in plugins(), f"{page} calls {word}"
        if re.fullmatch(r"playbooks/\w+\.yml", word):
            places = (ROOT / word, ROOT / "site_template" / word)
            assert any(path.exists() for path in places), f"{page} calls {word}"
        if number and words[number - 1] == "-e" and re.match(r"[a-z_]+=", word) and "_" in option:
            assert option in inputs(), f"{page} gives {option}, which nothing reads"


def test_each_check_of_the_agent_has_a_section_for_whoever_is_on_call() -> None:
    text = (ROOT / "docs/howto/drain_reasons.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### (\w+)$", text, re.MULTILINE)
    wanted = {name for check in registry.CHECKS for name in (check, *registry.owed(check))}
    assert wanted <= set(sections)
    assert len(sections) == len(set(sections))
    assert set(sections) - wanted == {"certification", "joining", "power", "removed", "teardown"}
