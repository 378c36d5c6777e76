# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make one environment: nothing of it stays unless it is whole and proved. Private."""

from __future__ import annotations

import shutil
import tempfile
import time
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._pinned_source import sha256
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import python_env_install as install
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack import python_env_lock as locks
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_driver import EnvironmentRefused
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_plan import Wheel
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_python import Interpreter
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.stack.python_env_store import Store

Json = t.Dict[str, t.Any]


class Order(t.NamedTuple):
    """What to install and how; ``own_lock`` is the lock file of the installer itself."""

    kind: str
    program: str
    own_lock: str
    python: Interpreter
    locks: t.Sequence[tuple[str, str]]
    wheels: t.Sequence[Wheel]
    source: install.Source
    timeout: float


def make(
    store: Store, name: str, inputs: t.Mapping[str, t.Any], order: Order, prove: t.Callable[[], Json]
) -> tuple[Json, Json]:
    """Build and prove an environment, which counts from its manifest on; return that and the proof."""
    _verify(order.wheels)
    _room(store, order)
    target = store.begin(name)
    work = tempfile.mkdtemp(prefix=".cache-", dir=store.envs)
    try:
        seconds = _fill(order, str(target), work)
        facts = prove()
        content = {"inputs": inputs, "facts": facts, "made": time.time(), "seconds": round(seconds, 1)}
        store.finish(name, content)
    except (ValueError, OSError) as exc:
        full = f" ({store.root} is full)" if store.full() else ""
        raise EnvironmentRefused(f"{exc}{full}") from exc
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if not store.manifest(name):
            store.abandon(name)
    return content, facts


def _verify(wheels: t.Iterable[Wheel]) -> None:
    for wheel in wheels:
        found = sha256(wheel.path)
        if found != wheel.sha256:
            raise EnvironmentRefused(f"{wheel.path} has sha256 {found}, asked for was {wheel.sha256}")


def _room(store: Store, order: Order) -> None:
    size = install.unpacked_size(order.source.folders, [wheel.path for wheel in order.wheels])
    free = store.free()
    if size > free:
        raise EnvironmentRefused(
            f"{store.root} has {free / 1e9:.1f} GB free, the environment takes {size / 1e9:.1f} GB. "
            "Nothing was changed; make room, or let fewer old environments stay (pytorch_keep)"
        )


def _fill(order: Order, target: str, work: str) -> float:
    if order.kind == "pip" and not order.python.venv:
        raise EnvironmentRefused(
            f"{order.python.command} has no venv or no ensurepip, which Debian and Ubuntu keep in the package "
            f"python{order.python.version}-venv. Install it, or use the installer uv, which needs neither"
        )
    folders = order.source.folders
    pins = locks.pins("of the installer", order.own_lock) if order.own_lock else []
    digests = {one.rpartition(":")[2] for pin in pins for one in pin.hashes}
    program = install.program(order.kind, order.program, folders, digests, work)
    files = [
        _written(Path(work, f"lock{number}.txt"), text, folders) for number, (dummy, text) in enumerate(order.locks)
    ]
    wheels = [wheel.path for wheel in order.wheels]
    commands = install.steps(order.kind, program, order.python.command, target, files, wheels, order.source)
    return install.perform(commands, install.variables(order.kind, work, bool(folders)), order.timeout)


def _written(path: Path, text: str, folders: t.Sequence[str]) -> str:
    """Write a lock file down; conda's is rewritten for packages that lie here."""
    here = locks.is_conda(text) and folders
    path.write_text(locks.local(locks.packages(path.name, text), folders[0]) if here else text + "\n")
    return str(path)
