# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install a lock into an environment: the interpreter, the installer, and the proof that imports work."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import typing as t
import zipfile
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._launch import NotFound, executable, find
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._process import Outcome, run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._sources import BuildStep, sha256, trouble
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.versions import (
    EnvironmentRefused,
    driver_problems,
    drivers,
)

# The commands that fill an environment: uv, pip or conda.


# Without packages' own tests, which are a sixth of what comes with PyTorch. What is no Python is passed over.
COMPILE = """\
import compileall, os, re, sysconfig
packages, workers = sysconfig.get_path("purelib"), min(16, len(os.sched_getaffinity(0)))
tests = re.compile(re.escape(packages) + ".*/tests/")
compileall.compile_dir(packages, quiet=2, workers=workers, rx=tests)
"""
# Isolated: a module of that name in the directory where the run happens to be is not what root runs.
PIP = ("-I", "-m", "pip")
PROGRAMS = {"uv": ["uv"], "conda": ["micromamba", "mamba", "conda"]}
_SHOWN = 10
_PLACES = ("/opt/conda/bin", "/opt/miniforge*/bin", "/opt/miniconda*/bin", "/opt/anaconda*/bin", "/opt/micromamba/bin")


class Source(t.NamedTuple):
    """Where packages come from: directories of files, or else indexes."""

    folders: t.Sequence[str]
    indexes: t.Sequence[str]


def steps(
    installer: str,
    program: str,
    python: str,
    target: str,
    files: t.Sequence[str],
    wheels: t.Sequence[str],
    source: Source,
) -> list[BuildStep]:
    """Return the commands; every lock file is one command, because pip checks hashes for all or for none."""
    if installer == "conda":
        first = [BuildStep(_conda(program, target, files[0], bool(source.folders)))]
        more, inside = files[1:], f"{target}/bin/python"
    elif installer == "uv":
        first, more, inside = [BuildStep([program, "venv", "--python", python, target])], files, f"{target}/bin/python"
    else:
        first, more, inside = [BuildStep([python, "-I", "-m", "venv", target])], files, f"{target}/bin/python"
    start = [program, "pip", "install", "--python", inside] if installer == "uv" else [inside, *PIP, "install"]
    start += ["--no-deps"] if installer == "uv" else ["--no-deps", "--no-cache-dir", "--no-input"]
    start += ["--no-compile"] if installer == "pip" else []
    online = _online(source, installer)
    commands = [BuildStep([*start, *online, "--only-binary=:all:", f"--requirement={file}"]) for file in more]
    if wheels:
        commands.append(BuildStep([*start, "--no-index", *wheels]))
    if installer != "conda":
        commands.append(BuildStep([inside, "-I", "-c", COMPILE]))
    if installer == "uv":
        commands.append(BuildStep([program, "pip", "check", "--python", inside]))
    elif installer == "pip" or more or wheels:
        commands.append(BuildStep([inside, *PIP, "check"]))
    return [*first, *commands]


def perform(commands: t.Iterable[BuildStep], environment: t.Mapping[str, str], timeout: float) -> float:
    """Run the commands; return the seconds they took. Installers say at the end, in several lines, what is wrong."""
    seconds = 0.0
    for step in commands:
        outcome = run(step.argv, timeout, environment={**environment, **step.environment})
        seconds += outcome.seconds
        if outcome.rc != 0:
            lines = [line.strip() for line in (outcome.err.strip() or outcome.out).splitlines() if line.strip()]
            status = "" if outcome.rc is None else f"exit status {outcome.rc}: "
            raise EnvironmentRefused(
                without_password(f"{' '.join(step.argv)} failed: {status}{' '.join(lines[-_SHOWN:])}")
            )
    return seconds


def without_password(text: str) -> str:
    """Return a text without users and passwords in URLs."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def public(indexes: t.Sequence[str]) -> list[str]:
    """Return package indexes; refuses passwords, which all users of the host could read on command lines."""
    if any(re.search(r"//[^/@\s]*:[^/@\s]*@", index) for index in indexes):
        raise EnvironmentRefused(
            "an index (pytorch_index) holds a password, which would show on command lines: put it into the ~/.netrc of"
            " the user who installs, mode 0600, which pip and uv read"
        )
    return list(indexes)


def _online(source: Source, installer: str) -> list[str]:
    if source.folders:
        return ["--no-index", *(f"--find-links={source_path}" for source_path in source.folders)]
    # uv would take a name from the first index that has it, in whatever version.
    safe = (
        ["--index-strategy=unsafe-best-match"]
        if installer == "uv" and source.indexes
        else ["--timeout=15", "--retries=1"]
    )
    return [
        *(f"--extra-index-url={source_path}" for source_path in source.indexes),
        *([] if installer == "uv" and not source.indexes else safe),
    ]


def _conda(program: str, target: str, file: str, offline: bool) -> list[str]:
    argv = [program, "create", "--yes", f"--prefix={target}", f"--file={file}"]
    return [*argv, *(["--offline"] if offline else []), *(["--no-rc"] if program.endswith("micromamba") else [])]


def variables(installer: str, cache: str, offline: bool) -> dict[str, str]:
    """Return the environment of the commands: their caches lie beside the environment, for links instead of copies."""
    settings = {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "HOME": cache}
    if installer == "uv":
        settings.update(UV_CACHE_DIR=cache, UV_PYTHON_DOWNLOADS="never", UV_PYTHON_PREFERENCE="only-system")
    if installer == "conda":
        settings.update(CONDA_PKGS_DIRS=f"{cache}/pkgs", MAMBA_ROOT_PREFIX=f"{cache}/root")
    if offline:
        settings.update(PIP_CONFIG_FILE=os.devnull, UV_NO_CONFIG="1", UV_OFFLINE="1")
    return settings


def program(installer: str, given: str, folders: t.Sequence[str], digests: t.Collection[str], into: str) -> str:
    """Return the installer's program: the given one, the one in a wheel that was handed on, or the host's own."""
    if installer == "pip":
        return ""
    packed = sorted(path for folder in folders for path in Path(folder).glob("uv-*.whl"))
    if installer == "uv" and packed and not given:
        return _unpacked(packed[-1], digests, into)
    try:
        return find(PROGRAMS[installer], given or None, _PLACES, role=None)
    except NotFound as exc:
        raise EnvironmentRefused(
            f"installer {installer}: {exc}. Install it or give its path (pytorch_installer_path)"
        ) from exc


def _unpacked(wheel: Path, digests: t.Collection[str], into: str) -> str:
    """Take the program out of uv's wheel, which needs no pip; its digest is one of its lock file's."""
    digest = sha256(wheel)
    if digest not in digests:
        raise EnvironmentRefused(f"{wheel.name} has sha256 {digest}, which is none of those in uv's lock file")
    with zipfile.ZipFile(wheel) as content:
        inside = next(name for name in content.namelist() if re.fullmatch(r"uv-[^/]+\.data/scripts/uv", name))
        goal = Path(into, "uv")
        with content.open(inside) as packed, goal.open("wb") as out:
            shutil.copyfileobj(packed, out)
    goal.chmod(0o755)
    return str(goal)


def unpacked_size(folders: t.Iterable[str], wheels: t.Iterable[str]) -> int:
    """Return the bytes that wheels take when unpacked; bytecode is a further tenth of the Python in them."""
    files = [str(path) for folder in folders for path in Path(folder).glob("*.whl") if not path.name.startswith("uv-")]
    total = 0
    for path in (*files, *wheels):
        try:
            with zipfile.ZipFile(path) as content:
                total += sum(member.file_size + 2048 for member in content.infolist())
        except (OSError, zipfile.BadZipFile) as exc:
            raise EnvironmentRefused(f"{path} cannot be read as a wheel: {exc}") from exc
    return total


# The interpreter that an environment is made with.


DEFAULT = "/usr/bin/python3"
PLACES = ("/usr/bin", "/usr/local/bin", "/opt/python*/bin", "/opt/*/bin", "/usr/local/python*/bin")
_TIMEOUT = 30.0
# The names that markers in lock files use, https://packaging.python.org/en/latest/specifications/dependency-specifiers/
_ASK = """
import importlib.util, json, os, platform, sys
i = sys.implementation
v = "%d.%d.%d" % i.version[:3]
print(json.dumps({"path": os.path.realpath(sys.executable), "glibc": platform.libc_ver()[1],
  "venv": bool(importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")), "markers": {
  "implementation_name": i.name, "implementation_version": v, "os_name": os.name, "sys_platform": sys.platform,
  "platform_machine": platform.machine(), "platform_system": platform.system(), "platform_release": "",
  "platform_version": "", "platform_python_implementation": platform.python_implementation(),
  "python_full_version": platform.python_version(), "python_version": "%d.%d" % sys.version_info[:2]}}))
"""


class Interpreter(t.NamedTuple):
    """An interpreter; ``command`` is the path that an environment is made with, ``path`` the file behind it."""

    command: str
    path: str
    glibc: str
    venv: bool
    markers: t.Mapping[str, str]

    @property
    def version(self) -> str:
        return self.markers["python_version"]

    @property
    def machine(self) -> str:
        return self.markers["platform_machine"]


def ask(command: str) -> Interpreter | None:
    """Return version, paths and markers of an interpreter; None when it does not work."""
    outcome = run([command, "-I", "-c", _ASK], _TIMEOUT)
    try:
        return Interpreter(command, **json.loads(outcome.out)) if outcome.rc == 0 else None
    except (ValueError, TypeError):
        return None


def installed(folder_patterns: t.Sequence[str] = PLACES) -> list[str]:
    """Return the interpreters of this host by their versioned names."""
    folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *folder_patterns]
    paths = (path for folder in folders for path in sorted(glob.glob(f"{folder}/python3.*")))  # noqa: PTH207
    return list(dict.fromkeys(path for path in paths if re.search(r"/python3\.\d+$", path) and executable(path)))


def find_interpreter(
    requested: str, looks: t.Callable[[str], Interpreter | None] = ask, paths: t.Sequence[str] | None = None
) -> Interpreter:
    """Return the interpreter of a path or a version; raises EnvironmentRefused with those that are installed."""
    known = installed() if paths is None else paths
    if "/" in requested or not requested:
        interpreter = looks(requested or DEFAULT)
        if interpreter:
            return interpreter
        raise EnvironmentRefused(
            f"pytorch_python: {requested or DEFAULT} is no interpreter that works here. {_known_text(known)}"
        )
    if not re.fullmatch(r"3\.\d+", requested):
        raise EnvironmentRefused(f"pytorch_python: {requested!r} is neither a path nor a version such as 3.12")
    for path in known:
        interpreter = looks(path) if path.endswith(f"/python{requested}") else None
        if interpreter and interpreter.version == requested:
            return interpreter
    raise EnvironmentRefused(
        f"pytorch_python: no Python {requested} on this host, looked in PATH and {', '.join(PLACES)}. "
        f"{_known_text(known)}; install one at the same path on every node, or choose one of these"
    )


def _known_text(known: t.Sequence[str]) -> str:
    return f"Found: {', '.join(known) or 'none'}"


# The proof that an environment works on the host where it runs.


# What a build of PyTorch was compiled for is only told by this private name where there is no GPU.
SCRIPT = """
import gc, importlib, json, os, platform, socket, sys
import torch
from torch.utils.data import DataLoader
gc.freeze()
facts = {"host": socket.gethostname().split(".")[0], "python": platform.python_version(), "torch": torch.__version__,
  "cuda": torch.version.cuda, "site": os.path.dirname(os.path.dirname(torch.__file__)),
  "cxx11abi": bool(torch.compiled_with_cxx11_abi()), "imports": [], "gpus": 0, "gpu_sum": None, "gpu_error": None}
facts["archs"] = (getattr(torch._C, "_cuda_getArchFlags", str)() or "").split() if torch.version.cuda else []
facts["sum"] = float(torch.ones(2, 2).matmul(torch.ones(2, 2)).sum())
for name in sys.argv[1:]:
    importlib.import_module(name)
    facts["imports"].append(name)
if torch.version.cuda:
    try:
        facts["gpus"] = torch.cuda.device_count()
        facts["gpu_sum"] = float(torch.ones(64, 64, device="cuda").matmul(torch.ones(64, 64, device="cuda")).sum())
    except (RuntimeError, AssertionError) as exc:
        facts["gpu_error"] = str(exc).strip().splitlines()[0]
print("\\n" + json.dumps(facts))
"""


def argv(target: str, imports: t.Sequence[str]) -> list[str]:
    return [f"{target}/bin/python", "-I", "-c", SCRIPT, *imports]


def read(outcome: Outcome, where: str) -> dict[str, t.Any]:
    """Return the facts that the script printed; raises EnvironmentRefused with its error instead."""
    for line in reversed(outcome.out.splitlines()):
        try:
            facts = json.loads(line)
        except ValueError:
            continue
        if outcome.rc == 0 and isinstance(facts, dict) and "torch" in facts:
            return facts
    raise EnvironmentRefused(f"the environment does not work {where}: {_last(outcome)}")


def _last(outcome: Outcome) -> str:
    """Return the end of a traceback, or the error of a launcher."""
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    return "\n".join(lines[-4:]) if lines and outcome.rc is not None else trouble(outcome)


def problems(facts: t.Mapping[str, t.Any], request: t.Mapping[str, t.Any], gpu: bool) -> list[str]:
    """Say where the facts differ from the request; ``gpu`` is whether the proof had to compute on a GPU."""
    faults = []
    if facts["sum"] != 8:
        faults.append(f"ones(2, 2) times itself sums up to {facts['sum']}, not 8")
    if request.get("torch") and facts["torch"].split("+")[0] != request["torch"].split("+")[0]:
        faults.append(f"it holds torch {facts['torch']}, the lock file says {request['torch']}")
    cuda = facts["cuda"] or ""
    if request.get("cuda") is not None and cuda != request["cuda"]:
        faults.append(f"torch {facts['torch']} is built for {_kind(cuda)}, asked for was {_kind(request['cuda'])}")
    compiled = [
        f"{architecture[3:-1]}.{architecture[-1]}"
        for architecture in facts["archs"]
        if architecture.startswith("sm_") and architecture[3:].isdigit()
    ]
    for driver in drivers(request.get("drivers") or []):
        faults += [f"torch {facts['torch']}: {text}" for text in driver_problems(cuda, compiled, driver)]
    if gpu and facts["gpu_sum"] != 64.0**3:
        reason = facts["gpu_error"] or f"a product sums up to {facts['gpu_sum']}"
        faults.append(f"torch {facts['torch']} for CUDA {cuda} cannot compute on the GPU of {facts['host']}: {reason}")
    return faults


def _kind(cuda: str) -> str:
    return f"CUDA {cuda}" if cuda else "CPUs"


def accept(facts: dict[str, t.Any], request: t.Mapping[str, t.Any], gpu: bool, where: str) -> dict[str, t.Any]:
    faults = problems(facts, request, gpu)
    if faults:
        raise EnvironmentRefused(f"the environment is not what was asked for, {where}: {'; '.join(faults)}")
    return facts


def enough(recorded: t.Mapping[str, t.Any], requested: str, imports: t.Collection[str]) -> bool:
    """Return whether a recorded proof covers the request; one through Slurm counts for one on this host as well."""
    if requested == "none":
        return True
    good = ("slurm",) if requested == "slurm" else ("slurm", "local")
    return any(kind in recorded and set(imports) <= set(recorded[kind].get("imports", [])) for kind in good)
