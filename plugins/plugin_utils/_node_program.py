# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a program that a node runs without Ansible: a module_utils file and all that it imports. Private."""

from __future__ import annotations

import ast
import sys
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.plugin_utils._imports import import_statements

HOME = "ansible_collections.hpcai.gpu_cluster.plugins.module_utils"
SOURCES = Path(__file__).resolve().parents[1] / "module_utils"
LAUNCHER = """\
#!{interpreter} -IS
# Ansible managed: {module} of the collection hpcai.gpu_cluster, with all that it needs in {library}.
import sys

sys.path.insert(0, {library!r})
from {home}{package} import {name}  # noqa: E402

sys.exit({name}.{function}([*sys.argv[1:], *{arguments!r}]))
"""


class ProgramError(ValueError):
    """No program can be made; the text is fit for the user."""


class Imports:
    """The names that a file imports, wherever it does; ``found`` holds (module, names of it).

    Imports are statements, so nothing is looked at below an expression: most of a file is expressions.
    """

    def __init__(self, package: str) -> None:
        self.package = package
        self.imports: list[tuple[str, list[str]]] = []

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            self.imports += [(alias.name, []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            self.imports.append((self._module(node), [alias.name for alias in node.names]))
        elif isinstance(node, ast.If) and _only_for_types(node.test):
            self._visit_all(node.orelse)
        else:
            for part in ("body", "handlers", "cases", "orelse", "finalbody"):
                self._visit_all(getattr(node, part, []))

    def _visit_all(self, nodes: t.Any) -> None:
        for node in nodes if isinstance(nodes, list) else []:  # the body of a lambda is an expression
            self.visit(node)

    def _module(self, node: ast.ImportFrom) -> str:
        above = self.package.split(".")[: len(self.package.split(".")) - node.level + 1] if node.level else []
        return ".".join([*above, *([node.module] if node.module else [])])


def _only_for_types(test: ast.expr) -> bool:
    """Whether it is TYPE_CHECKING, t.TYPE_CHECKING or typing.TYPE_CHECKING."""
    if isinstance(test, ast.Attribute):
        return test.attr == "TYPE_CHECKING" and isinstance(test.value, ast.Name) and test.value.id in ("t", "typing")
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


class Sources:
    """The files under a module_utils directory, by dotted names below it; an empty one is the directory itself.

    ``own`` has files from elsewhere that are taken for modules of it.
    """

    def __init__(self, root: Path = SOURCES, own: t.Mapping[str, Path] | None = None) -> None:
        self.root = root
        self.own = dict(own or {})

    def place(self, module: str) -> str:
        """Return where a module or package is, below the directory."""
        parts = module.split(".") if module else []
        return "/".join([*parts, "__init__.py"]) if self.is_package(module) else f"{'/'.join(parts)}.py"

    def is_package(self, module: str) -> bool:
        return self.root.joinpath(*module.split(".")).is_dir()

    def file(self, module: str) -> Path:
        """Return the file that a module is read from."""
        return self.own.get(module) or self.root / self.place(module)

    def exists(self, module: str) -> bool:
        return self.file(module).is_file()

    def text(self, module: str) -> str:
        """Return a module's text; a package without a file of its own is empty."""
        return self.file(module).read_text(encoding="utf-8") if self.exists(module) else ""

    def imports(self, module: str) -> list[str]:
        """Return which of these files a module imports; anything but them and the standard library is an error."""
        text = self.text(module)
        try:
            ours = self.root == SOURCES and module not in self.own
            tree = ast.parse(import_statements(text, for_types=False) if ours else text)
        except (SyntaxError, ValueError) as exc:
            raise ProgramError(f"{self.file(module)} is no Python that can be read: {exc}") from exc
        package = f"{HOME}.{module}" if module else HOME
        visitor = Imports(package if self.is_package(module) else package.rpartition(".")[0])
        visitor.visit(tree)
        try:
            return [name for imported in visitor.imports for name in self._own(*imported)]
        except ProgramError as exc:
            raise ProgramError(f"{self.file(module)}: {exc}") from exc

    def _own(self, module: str, names: list[str]) -> list[str]:
        """Return which of these files one import takes."""
        if not f"{module}.".startswith(f"{HOME}."):
            if module.split(".")[0] in sys.stdlib_module_names:
                return []
            raise ProgramError(f"it imports {module}, which a node without Ansible does not have")
        below = module[len(HOME) + 1 :]
        inside = {name: f"{below}.{name}".lstrip(".") for name in names}
        modules = [inside[name] for name in names if self.exists(inside[name])]
        absent = [inside[name] for name in names if inside[name] not in modules] if self.is_package(below) else [below]
        if absent and not self.exists(below):
            raise ProgramError(f"it imports {', '.join(absent)}, and {self.root} has no such file")
        return [below, *modules]


def closure(entry: str, sources: Sources) -> list[str]:
    """Return a module, all that it imports and the packages that they are in, sorted."""
    if not all(part.isidentifier() for part in entry.split(".")) or not sources.exists(entry):
        own = f"; {sources.own[entry]} has to be a file, and its name a name in Python" if entry in sources.own else ""
        raise ProgramError(f"{entry!r} is no module in {sources.root}{own}")
    seen: set[str] = set()
    ahead = [entry]
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += [*sources.imports(name), *([name.rpartition(".")[0]] if name else [])]
    return sorted(seen)


def launcher(entry: str, library: str, options: t.Mapping[str, t.Any]) -> str:
    """Return a script that calls a function of the module with its own arguments and, after them, fixed ones.

    Isolated (-I) and without site packages (-S): nothing on the node but its Python can break the program.
    """
    package, dot, name = entry.rpartition(".")
    arguments = [str(argument) for argument in options["arguments"]]
    words = {"interpreter": options["interpreter"], "function": options["function"], "arguments": arguments}
    if not str(words["function"]).isidentifier():
        raise ProgramError(f"{words['function']!r} is not the name of a function")
    return LAUNCHER.format(home=HOME, module=entry, package=f"{dot}{package}", name=name, library=library, **words)


def files(entry: str, options: t.Mapping[str, t.Any], sources: Sources | None = None) -> list[dict[str, t.Any]]:
    """Return the files as path, content and mode: the library sorted, then the program that needs it.

    The library's lines are no news in a diff, only that they changed.
    """
    own = {entry: Path(str(options["file"]))} if options.get("file") else None
    sources, library = sources or Sources(own=own), str(options["library"]).rstrip("/")
    folders = HOME.split(".")
    # Without these a package ansible_collections of the node's own would be taken for the whole of it.
    texts = {"/".join([*folders[:depth], "__init__.py"]): "" for depth in range(1, len(folders))}
    for name in closure(entry, sources):
        texts["/".join([*folders, sources.place(name)])] = sources.text(name)
    listed: list[dict[str, t.Any]] = [
        {"path": f"{library}/{path}", "content": texts[path], "mode": "0644", "diff": False} for path in sorted(texts)
    ]
    if options["program"]:
        listed.append({"path": options["program"], "content": launcher(entry, library, options), "mode": "0755"})
    return listed
