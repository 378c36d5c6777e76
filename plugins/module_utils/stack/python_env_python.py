# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the interpreter that an environment is made with, and ask it what it is. Private."""

from __future__ import annotations

import glob
import json
import os
import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._find import executable
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_driver import EnvironmentRefused

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
    """Return what an interpreter is; None when it does not work."""
    outcome = run([command, "-I", "-c", _ASK], _TIMEOUT)
    try:
        return Interpreter(command, **json.loads(outcome.out)) if outcome.rc == 0 else None
    except (ValueError, TypeError):
        return None


def installed(places: t.Sequence[str] = PLACES) -> list[str]:
    """Return the interpreters of this host by their versioned names."""
    folders = [*os.environ.get("PATH", os.defpath).split(os.pathsep), *places]
    found = (path for place in folders for path in sorted(glob.glob(f"{place}/python3.*")))  # noqa: PTH207
    return list(dict.fromkeys(path for path in found if re.search(r"/python3\.\d+$", path) and executable(path)))


def find(
    asked: str, looks: t.Callable[[str], Interpreter | None] = ask, paths: t.Sequence[str] | None = None
) -> Interpreter:
    """Return the interpreter of a path or a version; raises EnvironmentRefused with those that are there."""
    known = installed() if paths is None else paths
    if "/" in asked or not asked:
        found = looks(asked or DEFAULT)
        if found:
            return found
        raise EnvironmentRefused(
            f"pytorch_python: {asked or DEFAULT} is no interpreter that works here. {_there(known)}"
        )
    if not re.fullmatch(r"3\.\d+", asked):
        raise EnvironmentRefused(f"pytorch_python: {asked!r} is neither a path nor a version such as 3.12")
    for path in known:
        found = looks(path) if path.endswith(f"/python{asked}") else None
        if found and found.version == asked:
            return found
    raise EnvironmentRefused(
        f"pytorch_python: no Python {asked} on this host, looked in PATH and {', '.join(PLACES)}. {_there(known)}; "
        "install one at the same path on every node, or choose one of these"
    )


def _there(known: t.Sequence[str]) -> str:
    return f"Found: {', '.join(known) or 'none'}"
