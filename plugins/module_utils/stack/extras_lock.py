# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One lock for the packages beside PyTorch, which leaves what is installed already as it is. Private."""

from __future__ import annotations

import json
import re
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.extras_wheel import ExtrasError, normal

_INSTALLED = (
    "import importlib.metadata as m, json, platform, sys; print(json.dumps({'packages': {d.metadata['Name']: d.version"
    " for d in m.distributions()}, 'python': '%d.%d' % sys.version_info[:2], 'machine': platform.machine()}))"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PLATFORMS = {"x86_64": "x86_64-manylinux_2_28", "aarch64": "aarch64-manylinux_2_28"}


def installed(python: str) -> dict[str, t.Any]:
    """Return the packages of an environment, and which Python it is."""
    done = _command.run([python, "-I", "-c", _INSTALLED], 60)
    try:
        return t.cast(t.Dict[str, t.Any], json.loads(done.out))
    except ValueError as exc:
        raise ExtrasError(f"{python} does not say what it has: {done.problem or exc}") from exc


def inputs(packages: t.Sequence[t.Mapping[str, t.Any]], wheels: t.Sequence[t.Mapping[str, t.Any]]) -> list[str]:
    """Return what has to be resolved: packages of the index, and what built wheels require besides each other.

    Of projects in a wheel's C(relax) any version will do; some releases pin what they need not.
    """
    built = {normal(wheel["name"]) for wheel in wheels}
    wanted = [f"{package['name']}=={package['version']}" for package in packages if not package.get("source")]
    for wheel in wheels:
        loose = {normal(name) for name in wheel.get("relax") or []}
        needs = [one for one in wheel["requires"] if _required(one) not in built]
        wanted += [_required(one) if _required(one) in loose else one for one in needs]
    return sorted(set(wanted))


def _required(text: str) -> str:
    name = _NAME.match(text)
    return normal(name.group()) if name else ""


def constraints(base: t.Mapping[str, str]) -> list[str]:
    """Return the lines that keep what is installed; local versions such as 2.13.0+cpu are those of the wheel there."""
    return sorted(f"{normal(name)}=={version}" for name, version in base.items())


def left(lock: str, base: t.Mapping[str, str]) -> str:
    """Return the lock without what the environment has; its hashes go with it."""
    own = {normal(name) for name in base}
    kept, keep = [], True
    for line in lock.splitlines():
        if not line.startswith((" ", "#")):
            keep = _required(line) not in own
        if keep and not line.startswith("#"):
            kept.append(line)
    return "".join(f"{line}\n" for line in kept if line.strip())


def compile_lock(uv: str, wanted: t.Sequence[str], base: t.Mapping[str, t.Any], timeout: float) -> str:
    """Resolve with uv for the environment's Python and machine; a conflict is told in uv's words.

    Local versions such as 2.13.0+cpu are of no index. So it is first resolved against their public version, which finds
    conflicts but drags in what that one requires, and then without them, which makes the lock.
    """
    if base["machine"] not in _PLATFORMS:
        raise ExtrasError(f"no lock can be made for {base['machine']}: give a lock file of your own")
    local = {name: version.partition("+")[0] for name, version in base["packages"].items() if "+" in version}
    if local:
        done, dummy = _resolve(uv, wanted, {**base, "packages": {**base["packages"], **local}}, (), timeout)
        unknown = any(f"no version of {normal(name)}=={version}" in done.err for name, version in local.items())
        if done.rc != 0 and not unknown:
            raise ExtrasError(_conflict(done, wanted))
    public = {name: version for name, version in base["packages"].items() if name not in local}
    done, lock = _resolve(uv, wanted, {**base, "packages": public}, tuple(local), timeout)
    if done.rc != 0:
        raise ExtrasError(_conflict(done, wanted))
    return lock


def _resolve(
    uv: str, wanted: t.Sequence[str], base: t.Mapping[str, t.Any], without: t.Sequence[str], timeout: float
) -> tuple[_command.Outcome, str]:
    with tempfile.TemporaryDirectory(prefix="extras-") as folder:
        need, fixed, never, out = (Path(folder, name) for name in ("wanted.in", "fixed.txt", "never.txt", "lock.txt"))
        for path, lines in (
            (need, wanted),
            (fixed, constraints(base["packages"])),
            (never, [f"{normal(name)}; python_version < '0'" for name in without]),
        ):
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        argv = [uv, "pip", "compile", str(need), "--constraint", str(fixed), "--override", str(never)]
        argv += ["--output-file", str(out), "--quiet", "--no-header", "--no-annotate", "--generate-hashes"]
        argv += ["--python-version", base["python"], "--python-platform", _PLATFORMS[base["machine"]]]
        done = _command.run(argv, timeout)
        return done, left(out.read_text(encoding="utf-8"), base["packages"]) if done.rc == 0 else ""


def _conflict(done: _command.Outcome, wanted: t.Sequence[str]) -> str:
    if done.rc is None:
        return f"{done.problem}: install uv on the control host, or give training_extras_lock_file"
    said = " ".join(done.err.split())
    return f"{', '.join(wanted)} do not fit into the environment: {said[:1500]}"
