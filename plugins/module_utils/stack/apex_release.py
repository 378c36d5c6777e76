# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a release of Apex can build, read in its setup.py without running it: no I/O, no AnsibleModule, private.

The table of extensions, the modules each makes and the way they are asked for differ from release to release, so they
are taken from the release itself.
"""

from __future__ import annotations

import ast
import typing as t

VERSION_CHECK = "check_cuda_torch_binary_vs_bare_metal"
ASK_NVCC = "get_cuda_bare_metal_version"
_KINDS = {"CppExtension": False, "CUDAExtension": True}


class ApexError(ValueError):
    """Apex cannot be built as asked; the text is fit for the user."""


class Extension(t.NamedTuple):
    """One thing to ask for. ``maybe`` are modules that the release makes only where a condition of its own holds."""

    name: str
    modules: t.Sequence[str]
    maybe: t.Sequence[str]
    submodules: t.Sequence[str]
    cuda: bool


class Release(t.NamedTuple):
    """``variables`` are those that ask for an extension; a release without any knows command line options only."""

    extensions: t.Mapping[str, Extension]
    variables: t.Mapping[str, str]
    checks_versions: bool
    asks_nvcc: bool


def read(text: str) -> Release:
    tree = _parse(text)
    blocks = [(_option(node.test), node) for node in tree.body if isinstance(node, ast.If)]
    found = {option[2:]: _extension(option[2:], node) for option, node in blocks if option}
    extensions = {name: one for name, one in found.items() if one.modules or one.maybe}
    if "cpp_ext" not in extensions:
        raise ApexError("its setup.py names no extension cpp_ext, so this is no release of Apex that is known here")
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    asks = any(isinstance(node, ast.Assign) and _called(node.value) == ASK_NVCC for node in tree.body)
    return Release(extensions, _variables(tree), VERSION_CHECK in functions, asks)


def choose(release: Release, names: t.Iterable[str]) -> list[Extension]:
    """Return the extensions that are asked for; raises with all that this release has when it lacks one."""
    wanted = sorted(set(names))
    unknown = [name for name in wanted if name not in release.extensions]
    if unknown:
        has = ", ".join(sorted(release.extensions))
        raise ApexError(f"this release of Apex has no extension {', '.join(unknown)}; it has {has}")
    return [release.extensions[name] for name in wanted]


def without_version_check(text: str) -> str:
    """Return setup.py with the check of CUDA versions passed over: what its message tells users to do by hand."""
    return _leave_early(text, VERSION_CHECK, "return  # allow_cuda_mismatch")


def without_toolkit(text: str) -> str:
    """Return setup.py that asks no nvcc for its version: since 2022 all releases do, whatever is built."""
    return _leave_early(text, ASK_NVCC, 'return "", None  # nothing here is compiled by nvcc')


def _leave_early(text: str, name: str, statement: str) -> str:
    functions = [node for node in _parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not functions:
        raise ApexError(f"its setup.py has no function {name}, so this release cannot be built in this way")
    first = functions[0].body[0]
    lines = text.splitlines(keepends=True)
    lines.insert(first.lineno - 1, f"{' ' * first.col_offset}{statement}\n")
    return "".join(lines)


def _parse(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError) as exc:
        raise ApexError(f"its setup.py is not Python that the host's own Python can read: {exc}") from exc


def _option(test: ast.expr) -> str:
    """Return the one option that an ``if`` asks for; a test of several is no block of an extension."""
    options = {text for text in _texts(test) if text.startswith("--")}
    return options.pop() if len(options) == 1 else ""


def _texts(node: ast.AST) -> list[str]:
    return [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def _called(node: ast.expr) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _extension(name: str, block: ast.If) -> Extension:
    made = [found for statement in block.body for found in _made(statement, True)]
    return Extension(
        name,
        [module for module, dummy, always in made if always],
        [module for module, dummy, always in made if not always],
        sorted({path for node in ast.walk(block) for path in _submodules(node)}),
        any(cuda for dummy, cuda, dummy2 in made),
    )


def _made(node: ast.AST, always: bool) -> t.Iterator[tuple[str, bool, bool]]:
    """Yield each extension module, whether nvcc compiles it, and whether it is made without a condition."""
    if isinstance(node, ast.If):
        # "if there is no nvcc: raise, else: go on" is no condition: the build does not go on without.
        stops = bool(node.orelse) and all(isinstance(one, ast.Raise) for one in node.body)
        for one in [*node.body, *node.orelse]:
            yield from _made(one, always and stops)
        return
    if isinstance(node, ast.Call) and _called(node) in _KINDS:
        named = [one.value for one in node.keywords if one.arg == "name"] or node.args[:1]
        for module in [text for one in named for text in _texts(one)][:1]:
            yield module, _KINDS[_called(node)], always
    for child in ast.iter_child_nodes(node):
        yield from _made(child, always)


def _submodules(node: ast.AST) -> list[str]:
    """Return what is fetched by ``git submodule``, which an archive of the source does not hold."""
    texts = _texts(node) if isinstance(node, ast.List) else []
    return [text.rstrip("/") for text in texts if "/" in text] if "submodule" in texts else []


def _variables(tree: ast.Module) -> dict[str, str]:
    """Return the environment variable of each extension, from the table that releases since 25.09 carry."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            pairs = [(_texts(key), _texts(value)) for key, value in zip(node.value.keys, node.value.values) if key]
            names = {option[0][2:]: name[0] for name, option in pairs if name and option and option[0][:2] == "--"}
            if names and all(name.startswith("APEX_") for name in names.values()):
                return names
    return {}
