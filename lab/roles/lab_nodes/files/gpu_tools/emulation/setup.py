# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make, break and remove an emulated machine type in a directory: its description, /sys, faults and tools.

    setup.py install DIRECTORY NODE...   with the profile as JSON on standard input
    setup.py faults DIRECTORY NODE...    with the faults as JSON on standard input; {} makes the nodes sound again
    setup.py remove DIRECTORY

Prints "changed" when something was. With --check nothing is changed, and the same is printed.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import shutil
import sys
import typing as t
from pathlib import Path, PurePath

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from emulation import sysfs
from emulation.description import describe
from emulation.machine import Json, Machine
from emulation.tools import ON_LOGIN, OPTIONAL, TOOLS

SOURCE = Path(__file__).resolve().parent.parent
# Everything that this program makes in the directory; what else is there is not its own.
OWN = ("bin", "bin-login", "faults", "faults.json", "gpu_tools", "machine.json", "sys")
SOUND = "sound"


class Plan(t.NamedTuple):
    """Files and links by path; directories that hold nothing else; what shall not exist at all."""

    files: dict[str, str]
    whole: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def install(profile: Json, nodes: t.Sequence[str]) -> Plan:
    """A sound machine for every node. Faults that were injected are kept for none of them."""
    description = describe(profile)
    files = {"machine.json": json.dumps(description, indent=1, sort_keys=True) + "\n"}
    for name in ("emulate", *sorted(path.name for path in (SOURCE / "emulation").glob("*.[pt][yx]*"))):
        path = SOURCE / name if name == "emulate" else SOURCE / "emulation" / name
        files[f"gpu_tools/{path.relative_to(SOURCE)}"] = path.read_text(encoding="utf-8")
    files.update({f"bin/{name}": sysfs.Link("../gpu_tools/emulate") for name in TOOLS if name not in OPTIONAL})
    files.update({f"bin-login/{name}": sysfs.Link("../gpu_tools/emulate") for name in ON_LOGIN})
    files.update(_sys(description, {}, SOUND))
    files.update({f"sys/{node}": sysfs.Link(SOUND) for node in nodes})
    return Plan(files, ("bin", "bin-login", "gpu_tools", "sys"), ("faults", "faults.json"))


def faults(description: Json, wanted: Json, nodes: t.Sequence[str]) -> Plan:
    """Break nodes. Those whose /sys shows it get one of their own."""
    files: dict[str, str] = {}
    for node in nodes:
        Machine(description, wanted, node)  # refuses what is no fault
        if wanted:
            files[f"faults/{node}.json"] = json.dumps(wanted, indent=1, sort_keys=True) + "\n"
        if {"ib_down", "missing_gpu", "pcie_width"} & set(wanted):
            files.update(_sys(description, wanted, node))
        else:
            files[f"sys/{node}"] = sysfs.Link(SOUND)
    mended = () if wanted else tuple(f"faults/{node}.json" for node in nodes)
    return Plan(files, tuple(f"sys/{node}" for node in nodes if f"sys/{node}" not in files), mended)


def _sys(description: Json, wanted: Json, name: str) -> dict[str, str]:
    found = sysfs.lines(sysfs.tree(Machine(description, wanted, name)))
    return {f"sys/{name}/{path}": text for path, text in found.items()}


def apply(directory: Path, plan: Plan, check: bool) -> bool:
    """Bring the directory to what was planned; returns whether that changed anything."""
    wrong = [name for name, text in plan.files.items() if _now(directory, name) != text]
    extra = [path for name in plan.whole for path in _leaves(directory / name)]
    extra = [path for path in extra if str(path.relative_to(directory)) not in plan.files]
    gone = [directory / name for name in plan.gone if (directory / name).exists()]
    if not check:
        for path in [*gone, *extra]:
            _remove(path)
        for name in wrong:
            _write(directory, name, plan.files[name])
        with contextlib.suppress(OSError):  # as long as another node is broken
            (directory / "faults").rmdir()
        # Tools may not write on their read-only file system, and to compile would be half of a call. For the Python
        # that runs here; another one compiles as before.
        if (directory / "gpu_tools").is_dir():
            compileall.compile_dir(directory / "gpu_tools", quiet=2)
    return bool(wrong or extra or gone)


def _links(directory: Path, name: str) -> list[Path]:
    """The links on the way to a file: what lies behind them is another node's."""
    return [directory / above for above in PurePath(name).parents if (directory / above).is_symlink()]


def _now(directory: Path, name: str) -> str | None:
    """What is there: a text, a link (which never equals a text), or nothing."""
    path = directory / name
    if _links(directory, name):
        return None
    if path.is_symlink():
        return sysfs.Link(os.readlink(path))
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _leaves(path: Path) -> list[Path]:
    if path.name == "__pycache__":
        return []
    if path.is_dir() and not path.is_symlink():
        return [leaf for entry in path.iterdir() for leaf in _leaves(entry)]
    return [path] if path.is_symlink() or path.exists() else []


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or path.exists():
        path.unlink()


def _write(directory: Path, name: str, text: str) -> None:
    """Put a file or link in place of whatever is there; nobody reads half a file."""
    path = directory / name
    for link in _links(directory, name):
        link.unlink()
    _remove(path)
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if isinstance(text, sysfs.Link):
        path.symlink_to(text)
        return
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.chmod(0o755 if path.name == "emulate" else 0o644)
    new.replace(path)


def main(arguments: t.Sequence[str]) -> int:
    words = [word for word in arguments if word != "--check"]
    verb, directory, nodes = words[0], Path(words[1]), words[2:]
    check = len(words) != len(arguments)
    if verb == "remove":
        changed = apply(directory, Plan({}, gone=OWN), check)
    elif verb == "install":
        changed = apply(directory, install(json.load(sys.stdin), nodes), check)
    elif verb == "faults":
        description = json.loads((directory / "machine.json").read_text(encoding="utf-8"))
        changed = apply(directory, faults(description, json.load(sys.stdin), nodes), check)
    else:
        raise SystemExit(__doc__)
    print("changed" if changed else "unchanged")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
