# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Apex is built for a PyTorch and a CUDA: what is there, the release, the commands, what stands against it."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import identity
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.apex_probe import HEADERS, MARK

# What a release of Apex can build, read in its setup.py without running it.


VERSION_CHECK = "check_cuda_torch_binary_vs_bare_metal"
PARALLEL = "APEX_PARALLEL_BUILD"
ASK_NVCC = "get_cuda_bare_metal_version"
_KINDS = {"CppExtension": False, "CUDAExtension": True}


class ApexError(ValueError):
    """Apex cannot be built as requested; the text is fit for the user."""


class Extension(t.NamedTuple):
    """An extension. ``maybe`` are modules that the release makes only where a condition of its own holds."""

    name: str
    modules: t.Sequence[str]
    maybe: t.Sequence[str]
    submodules: t.Sequence[str]
    cuda: bool


class Release(t.NamedTuple):
    """``variables`` are those that ask for an extension; a release without any knows command line options only.

    ``parallel`` ones build several modules at a time where a variable asks for it: those since August 2025.
    """

    extensions: t.Mapping[str, Extension]
    variables: t.Mapping[str, str]
    checks_versions: bool
    asks_nvcc: bool
    parallel: bool


def read(text: str) -> Release:
    tree = _parse(text)
    blocks = [(_option(node.test), node) for node in tree.body if isinstance(node, ast.If)]
    options = {option[2:]: _extension(option[2:], node) for option, node in blocks if option}
    extensions = {name: extension for name, extension in options.items() if extension.modules or extension.maybe}
    if "cpp_ext" not in extensions:
        raise ApexError("its setup.py names no extension cpp_ext, so this is no release of Apex that is known here")
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    asks = any(isinstance(node, ast.Assign) and _called(node.value) == ASK_NVCC for node in tree.body)
    return Release(extensions, _variables(tree), VERSION_CHECK in functions, asks, PARALLEL in _texts(tree))


def choose(release: Release, names: t.Iterable[str]) -> list[Extension]:
    """Return the requested extensions; raises with the names of all extensions when this release lacks one."""
    requested = sorted(set(names))
    unknown = [name for name in requested if name not in release.extensions]
    if unknown:
        has = ", ".join(sorted(release.extensions))
        raise ApexError(f"this release of Apex has no extension {', '.join(unknown)}; it has {has}")
    return [release.extensions[name] for name in requested]


def without_version_check(text: str) -> str:
    """Return setup.py without its check of CUDA versions, the edit that its message recommends to users."""
    return _leave_early(text, VERSION_CHECK, "return  # allow_cuda_mismatch")


def without_toolkit(text: str) -> str:
    """Return setup.py that does not run nvcc: since 2022 all releases run it for its version, whatever is built."""
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
    """Return the one option that an ``if`` tests; a test of several is not the block of an extension."""
    options = {text for text in _texts(test) if text.startswith("--")}
    return options.pop() if len(options) == 1 else ""


def _texts(node: ast.AST) -> list[str]:
    return [
        constant.value
        for constant in ast.walk(node)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    ]


def _called(node: ast.expr) -> str:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _extension(name: str, block: ast.If) -> Extension:
    modules = [entry for statement in block.body for entry in _extension_modules(statement, True)]
    return Extension(
        name,
        [module for module, dummy, always in modules if always],
        [module for module, dummy, always in modules if not always],
        sorted({path for node in ast.walk(block) for path in _submodules(node)}),
        any(cuda for dummy, cuda, dummy2 in modules),
    )


def _extension_modules(node: ast.AST, always: bool) -> t.Iterator[tuple[str, bool, bool]]:
    """Yield each extension module, whether nvcc compiles it, and whether it is made without a condition."""
    if isinstance(node, ast.If):
        # "if there is no nvcc: raise, else: go on" is no condition: the build does not go on without.
        stops = bool(node.orelse) and all(isinstance(child_node, ast.Raise) for child_node in node.body)
        for child_node in [*node.body, *node.orelse]:
            yield from _extension_modules(child_node, always and stops)
        return
    if isinstance(node, ast.Call) and _called(node) in _KINDS:
        named = [child_node.value for child_node in node.keywords if child_node.arg == "name"] or node.args[:1]
        for module in [text for child_node in named for text in _texts(child_node)][:1]:
            yield module, _KINDS[_called(node)], always
    for child in ast.iter_child_nodes(node):
        yield from _extension_modules(child, always)


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


# What apex_probe read on a host.


Json = t.Dict[str, t.Any]

_TOOLS = ("pip", "setuptools", "wheel", "packaging")
_ARCHITECTURE = re.compile(r"(\d+\.\d)([af]?)(\+PTX)?")


def parse(output: str, python: str, problem: str) -> Json:
    """Return the facts that the probe printed; other lines of Python and srun are ignored."""
    lines = [line[len(MARK) :] for line in output.splitlines() if line.startswith(MARK)]
    try:
        facts = json.loads(lines[-1]) if lines else None
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        raise ApexError(f"nothing was changed. {python} cannot tell what it offers: {problem or 'no answer'}")
    return facts


def architectures(requested: t.Iterable[t.Any]) -> list[str]:
    """Return compute capabilities as PyTorch writes them, each once and in order."""
    names = [str(entry).strip() for entry in requested]
    wrong = [name for name in names if not _ARCHITECTURE.fullmatch(name)]
    if wrong:
        raise ApexError(f"architecture {wrong[0]!r} is no compute capability such as 8.0, 9.0a or 8.0+PTX")
    return sorted(set(names), key=lambda name: (number(name), name))


def number(architecture: str) -> int:
    """Return 90 for 9.0a."""
    match = re.match(r"(\d+)\.(\d)", architecture)
    return int("".join(match.groups())) if match else 0


def parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0]))


def nvcc(facts: Json) -> str:
    """Return the full version of the CUDA compiler, such as 13.0.88; empty when there is none."""
    match = re.search(r"release [\d.]+, V([\d.]+)", facts.get("nvcc") or "")
    return match.group(1) if match else ""


def nvcc_release(facts: Json) -> str:
    """Return what nvcc calls its release, such as 13.0."""
    return ".".join(nvcc(facts).split(".")[:2])


def compiler(facts: Json) -> tuple[str, str]:
    """Return kind and version of the C++ compiler."""
    version = (facts.get("compiler_version") or "").strip()
    return "clang" if "clang version" in (facts.get("compiler_name") or "") else "g++", version


def missing_tools(facts: Json) -> list[str]:
    """Return the tools that a build needs and the environment lacks; setuptools packs wheels itself since 70.1."""
    has: t.Mapping[str, str | None] = facts["tools"]
    packs = parts(has["setuptools"] or "0") >= (70, 1)
    absent = [name for name in _TOOLS if has[name] is None and not (name == "wheel" and packs)]
    return absent + ([] if facts.get("ninja") else ["ninja"])


def includes(facts: Json) -> list[str]:
    """Return the include directories of PyTorch's wheels that a build needs beside the toolkit's own."""
    has = set(facts["cuda_headers"])
    return [folder for folder, names in facts["includes"].items() if not names or set(names) - has]


def jobs(facts: Json, memory_per_job: int, most: int | None) -> int:
    """Return how many compilers may run at a time; the kernel would end one that finds no memory."""
    fit = int(facts["memory"] // (memory_per_job << 20))
    return max(1, min(facts["cpus"], fit, most or facts["cpus"]))


def abreast(compilers: int) -> tuple[int, int]:
    """Return how many modules are built at a time, and how many compilers each may have.

    Of cuda_ext's modules one has half of the files and the others one or two each: alone these would leave CPUs idle.
    """
    modules = math.isqrt(compilers)
    return modules, compilers // modules


# How a wheel is built, and what decides its content.


# Raised when the commands below change in a way that makes another wheel.
RECIPE = 1
# pip hands several values of one --config-settings key on since 23.1.
_SETTINGS = (23, 1)
# Whoever is killed takes the shell along with a signal, and that all of its session: pip would leave compilers behind.
_TOGETHER = """trap 'trap "" TERM; kill 0' TERM; "$@" & wait $!"""
_LONG = re.compile(r"[a-z][a-z0-9_-]*")


class ApexBuild(t.NamedTuple):
    """One build. All that is in ``scratch`` goes when it ends; ``path`` is where the host's own programs are."""

    params: t.Mapping[str, t.Any]
    facts: Json
    release: Release
    extensions: t.Sequence[Extension]
    scratch: str
    source: str
    pip: str
    path: str


def inputs(params: t.Mapping[str, t.Any], facts: Json) -> Json:
    """Return everything that decides the result of a build; None for what was not read of the host yet."""
    known = "compiler" in facts
    cuda = any(name != "cpp_ext" for name in params["extensions"])
    return {
        "recipe": RECIPE,
        "source": identity(params["source"]),
        "submodules": {path: identity(source) for path, source in sorted(params["submodules"].items())},
        "extensions": sorted(set(params["extensions"])),
        "abi": facts["abi"],
        "torch": facts.get("torch") or "",
        "cuda": facts.get("cuda") or "",
        "cxx11abi": bool(facts.get("cxx11abi")),
        "architectures": architectures(params["architectures"]) if cuda else [],
        "mismatch": bool(params["allow_cuda_mismatch"]) if cuda else False,
        "nvcc": (nvcc(facts) if known else None) if cuda else "",
        "compiler": " ".join(compiler(facts)) if known else None,
        # Only its digest, as a manifest is for everyone to read.
        "environment": digest({key: str(value) for key, value in params["environment"].items()}),
    }


def same(requested: t.Mapping[str, t.Any], built: t.Mapping[str, t.Any]) -> bool:
    """Return whether a wheel is the requested one, as far as is known: a login node may have no toolkit."""
    return set(requested) == set(built) and all(
        value is None or value == built[key] for key, value in requested.items()
    )


def digest(inputs: t.Mapping[str, t.Any]) -> str:
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


def prefix(through: str, options: t.Mapping[str, t.Any], name: str) -> list[str]:
    """Return the srun command that starts a program on a node, empty for this host; underscores stand for dashes."""
    if through == "local":
        return []
    wrong = [key for key in options if not _LONG.fullmatch(str(key))]
    if wrong:
        raise ApexError(f"{wrong[0]!r} is no long option of srun")
    named = {str(key).replace("_", "-"): value for key, value in options.items()}
    merged = {"job-name": name, "nodes": 1, "ntasks": 1, **named}
    arguments = [
        f"--{key}" if value is True else f"--{key}={value}" for key, value in merged.items() if value is not False
    ]
    return ["srun", *arguments]


def missing_sources(extensions: t.Iterable[Extension], pinned: t.Mapping[str, t.Any]) -> str:
    """Say which extensions need submodules that are not given; empty when none is missing."""
    absent = [(extension.name, path) for extension in extensions for path in extension.submodules if path not in pinned]
    named = ", ".join(f"{name} needs {path}" for name, path in absent)
    return named and (
        f"{named}: a git submodule, which an archive of Apex's source does not hold and a build without network cannot "
        "fetch; give its own pinned source in submodules, or leave the extension out"
    )


def variables(build: ApexBuild) -> dict[str, str]:
    """Return the environment of the build; the names of Apex's own variables come from the release."""
    params, facts, scratch = build.params, build.facts, build.scratch
    requested = {extension.name for extension in build.extensions}
    compilers_at_once = jobs(facts, params["memory_per_job"], params["jobs"])
    modules, each = abreast(compilers_at_once) if build.release.parallel else (1, compilers_at_once)
    folders = [f"{scratch}/tools/bin", f"{facts['cuda_home']}/bin", params["python"].rpartition("/")[0], build.path]
    settings = {
        "PATH": ":".join(folders),
        "PYTHONPATH": f"{scratch}/tools",
        "PYTHONNOUSERSITE": "1",
        "TMPDIR": f"{scratch}/temporary",
        "HOME": f"{scratch}/temporary",
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        # Also where no extension is for GPUs: releases of 2022 ask nvcc when it is not set.
        "TORCH_CUDA_ARCH_LIST": ";".join(architectures(params["architectures"])) or "8.0",
        "MAX_JOBS": str(each),
        PARALLEL: str(modules),
        # setup.py calls git submodule update, and git would answer for a repository that happens to lie above.
        "GIT_CEILING_DIRECTORIES": scratch,
        "CUDA_HOME": facts["cuda_home"],
        "CPATH": ":".join(includes(facts)),
        **compilers(params["compiler"] or ""),
        "APEX_ALL_CONTRIB_EXT": "0",
        **{variable: str(int(name in requested)) for name, variable in build.release.variables.items()},
    }
    return {**settings, **{key: str(value) for key, value in params["environment"].items()}}


def compilers(given: str) -> dict[str, str]:
    """Return what names another C++ compiler; PyTorch makes nvcc use the C compiler that belongs to it."""
    folder, slash, name = given.rpartition("/")
    c = name.replace("clang++", "clang") if "clang" in name else name.replace("g++", "gcc")
    return {"CXX": given, "CC": f"{folder}{slash}{c}"} if given else {}


def command(build: ApexBuild, start: t.Sequence[str]) -> list[str]:
    """Return the command that builds: variables ask for extensions since 25.09, options did before."""
    argv = [build.params["python"], "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-cache-dir", "-v"]
    if not build.release.variables:
        argv += _options(build.extensions, build.pip)
    together = [] if start else ["sh", "-c", _TOGETHER, "sh"]  # srun ends what it started by itself
    return [*together, *start, *argv, f"--wheel-dir={build.scratch}/wheels", build.source]


def _options(extensions: t.Sequence[Extension], pip: str) -> list[str]:
    version = tuple(int(part) for part in re.findall(r"\d+", pip)[:2])
    if version >= _SETTINGS:
        return ["--use-pep517", *(f"--config-settings=--build-option=--{extension.name}" for extension in extensions)]
    return ["--no-use-pep517", *(f"--global-option=--{extension.name}" for extension in extensions)]


def edit(text: str, release: Release, extensions: t.Sequence[Extension], allow_mismatch: bool) -> tuple[str, str]:
    """Return setup.py as it is built, and what was changed in it; mostly nothing is."""
    if not any(extension.cuda for extension in extensions):
        return (without_toolkit(text), "setup.py asks no nvcc") if release.asks_nvcc else (text, "")
    return (without_version_check(text), "setup.py compares no CUDA versions") if allow_mismatch else (text, "")


# Whether Apex can be built on a host for its PyTorch.


class ApexRequest(t.NamedTuple):
    """What is requested of a build; ``disk`` is in MiB, ``tools`` says whether missing ones are provided."""

    python: str
    cuda: bool
    architectures: t.Sequence[str]
    allow_mismatch: bool
    tools: bool
    disk: int
    build_dir: str


def problems(facts: Json, request: ApexRequest) -> list[str]:
    """Return every reason against a build, each with what can be done."""
    if not facts.get("torch"):
        why = facts.get("torch_error", "")
        return [f"{request.python} cannot import torch ({why}); give the python of an environment with PyTorch"]
    if request.cuda and not facts["cuda"]:
        return [f"PyTorch {facts['torch']} is built without CUDA: of Apex only cpp_ext can be built for it"]
    if "compiler" not in facts:  # a node that Slurm chooses was not read yet
        return []
    return [*(_cuda(facts, request) if request.cuda else []), *_compiler(facts, request.cuda), *_room(facts, request)]


def _cuda(facts: Json, request: ApexRequest) -> list[str]:
    home, release = facts["cuda_home"], nvcc_release(facts)
    if not release:
        advice = f"give cuda_home, a toolkit of CUDA {facts['cuda']}"
        return [f"the CUDA compiler {home}/bin/nvcc is missing or cannot be run on {facts['host']}; {advice}"]
    faults = [*_versions(facts, release, request.allow_mismatch), *_targets(facts, request.architectures, release)]
    has = set(facts["cuda_headers"]).union(*facts["includes"].values())
    absent = [name for name in HEADERS if name not in has]
    if absent:
        faults.append(f"{', '.join(absent)} missing in {home}/include and beside PyTorch: install CUDA's libraries-dev")
    return faults


def _versions(facts: Json, release: str, allowed: bool) -> list[str]:
    """Compare as Apex's setup.py does: MAJOR.MINOR of what nvcc calls its release, and torch.version.cuda."""
    built = facts["cuda"]
    if parts(release)[:2] == parts(built)[:2]:
        return []
    both = f"nvcc in {facts['cuda_home']} is CUDA {release}, PyTorch {facts['torch']} is built with CUDA {built}"
    advice = f"give cuda_home, a toolkit of CUDA {built}, or an environment whose PyTorch is built with CUDA {release}"
    if parts(release)[0] != parts(built)[0]:
        return [f"{both}: another major version, which PyTorch itself refuses to compile with; {advice}"]
    if allowed:
        return []
    rule = "Apex's setup.py compares both as MAJOR.MINOR and stops when they differ"
    return [f"{both}: {rule}; {advice}, or set allow_cuda_mismatch, at your own risk: only the minor versions differ"]


def _targets(facts: Json, requested: t.Sequence[str], release: str) -> list[str]:
    if not requested:
        return ["no architectures are given: name the compute capabilities of the cluster's GPUs, such as 8.0"]
    faults = []
    if facts["refused"]:
        faults.append(f"PyTorch {facts['torch']} does not build for {', '.join(requested)}: {facts['refused']}")
    codes = set(re.findall(r"\bsm_(\d+)", facts["codes"]))
    unknown = [architecture for architecture in requested if codes and str(number(architecture)) not in codes]
    if unknown:
        known = ", ".join(f"{int(code) // 10}.{int(code) % 10}" for code in sorted(codes, key=int))
        faults.append(f"CUDA {release} does not compile for {', '.join(unknown)} (it does for {known})")
    useless = [
        architecture
        for architecture in requested
        if facts["archs"] and not runs(number(architecture), facts["archs"].split())
    ]
    if useless:
        faults.append(f"PyTorch {facts['torch']} has no code for {', '.join(useless)}, only {facts['archs']}")
    return faults


def runs(requested: int, archs: t.Sequence[str]) -> bool:
    """Return whether code for some architectures runs on a GPU: same major and not newer, or PTX that is not newer."""
    codes = [int(code) for code in re.findall(r"\bsm_(\d+)", " ".join(archs))]
    portable = [int(code) for code in re.findall(r"\bcompute_(\d+)", " ".join(archs))]
    near = any(code // 10 == requested // 10 and code <= requested for code in codes)
    return near or any(portable_code <= requested for portable_code in portable)


def _compiler(facts: Json, cuda: bool) -> list[str]:
    kind, version = compiler(facts)
    if not version:
        path = facts["compiler_path"]
        return [
            f"the C++ compiler {path} cannot be run on {facts['host']}: install one (package g++), or give compiler"
        ]
    if kind != "g++":  # PyTorch knows no bounds for the clang of every distribution
        return []
    least, most = tuple(facts["least"]), ()
    where = "torch.utils.cpp_extension.MINIMUM_GCC_VERSION"
    release = nvcc_release(facts)
    if cuda and release in facts["bounds"]:
        least, most = map(tuple, facts["bounds"][release])
        where = f"torch.utils.cpp_extension.CUDA_GCC_VERSIONS for CUDA {release}"
    below = f" and older than {_text(most)}" if most else ""
    bounds = f"PyTorch {facts['torch']} wants {_text(least)} or newer{below} ({where}); give compiler, another's path"
    if parts(version) < least:
        return [f"{kind} {version} ({facts['compiler']}) is too old: {bounds}"]
    if most and parts(version) >= most:
        return [f"{kind} {version} ({facts['compiler']}) is too new: {bounds}"]
    return []


def _room(facts: Json, request: ApexRequest) -> list[str]:
    faults = []
    if not facts["headers"]:
        faults.append(f"Python.h is missing in {facts['include']}: install Python's headers (package python3-dev)")
    if facts["free"] < request.disk << 20:
        free = facts["free"] >> 20
        faults.append(
            f"{request.build_dir} on {facts['host']} has {free} MiB free, not {request.disk} (disk); give build_dir"
        )
    absent = missing_tools(facts)
    if absent and not request.tools:
        faults.append(f"{', '.join(absent)} missing in the environment: give tools, a directory with their wheels")
    return faults


def _text(version: t.Sequence[int]) -> str:
    return ".".join(map(str, version))
