# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bundles, with which nodes configure themselves: request, content, the file, and which old ones may go."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import tarfile
import typing as t
import zipfile
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files

# What of this collection a node needs to configure itself: the roles of node.yml and what they call.


PLAYBOOK = "playbooks/node.yml"
# By names that are computed: the agent's parts, data.
ALWAYS = (
    "meta/runtime.yml",
    PLAYBOOK,
    "plugins/callback/node_result.py",
    "plugins/module_utils/agent",
    "plugins/module_utils/certify",
    "plugins/module_utils/drain",
    "plugins/module_utils/node/apply.py",
    "plugins/plugin_utils/profiles",
)
_NAME = re.compile(r"\bhpcai\.gpu_cluster\.(\w+)")
_PROGRAM = re.compile(r"hpcai\.gpu_cluster\.node_program',\s*'([\w.]+)'")
_OURS = r"ansible_collections\.hpcai\.gpu_cluster\.plugins\."
_FROM = re.compile(rf"^\s*from {_OURS}([\w.]+) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_IMPORT = re.compile(rf"^\s*import {_OURS}([\w.]+)", re.MULTILINE)
# Where a role says what it calls; its page and its specification only speak of others.
_CALLS = ("tasks", "handlers", "defaults", "vars", "templates")


class BundleError(ValueError):
    """No bundle can be made; the text is fit for the user."""


class BundleFile(t.NamedTuple):
    data: bytes
    mode: int = 0o644


class Called(t.NamedTuple):
    """What texts name: roles and plugins, and the programs that they put on the node."""

    names: set[str]
    programs: set[str]


def texts(role: Path) -> list[str]:
    """Return the texts in which a role calls others."""
    return [
        path.read_text(encoding="utf-8", errors="replace")
        for path in files(role)
        if path.relative_to(role).parts[0] in _CALLS or path.relative_to(role) == Path("meta", "main.yml")
    ]


def called(root: Path) -> tuple[list[str], Called]:
    """Return the roles that the playbook brings along, and all that it and they name."""
    if not (root / PLAYBOOK).is_file():
        raise BundleError(f"{root} is not this collection: it has no {PLAYBOOK}")
    read_ahead = [(root / PLAYBOOK).read_text(encoding="utf-8")]
    roles: set[str] = set()
    found = Called(set(), set())
    while read_ahead:
        for text in read_ahead:
            found.names.update(_NAME.findall(text))
            found.programs.update(_PROGRAM.findall(text))
        new = {name for name in found.names - roles if (root / "roles" / name / "tasks").is_dir()}
        roles |= new
        read_ahead = [text for role in sorted(new) for text in texts(root / "roles" / role)]
    return sorted(roles), found


def plugins(root: Path, found: Called) -> list[Path]:
    """Return the plugins that are named; a file of filters has several, each with a page."""
    picked = []
    for kind in ("action", "lookup", "modules"):
        picked += [path for path in files(root / "plugins" / kind) if path.stem in found.names]
    for path in files(root / "plugins/filter"):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py" and any(f'"{name}"' in text for name in found.names):
            picked += [
                path,
                *(page for page in files(path.parent) if page.suffix == ".yml" and f'"{page.stem}"' in text),
            ]
    for name in sorted(found.programs):
        picked.append(place(root, f"module_utils.{name}"))
    return picked


def place(root: Path, module: str) -> Path:
    """Return the file of a module or package below plugins."""
    path = root.joinpath("plugins", *module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(root: Path, text: str) -> set[Path]:
    """Return the files that a Python text needs of this collection; fragments of documentation declare options."""
    modules = set(_IMPORT.findall(text))
    for module, names in _FROM.findall(text):
        modules |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
    modules |= {f"doc_fragments.{name}" for name in _NAME.findall(text)}
    return {path for path in (place(root, module) for module in modules) if path.is_file()}


def collection(root: Path) -> tuple[dict[str, BundleFile], list[str]]:
    """Return the files of this collection that a node needs, by their paths in it, and the roles among them."""
    roles, found = called(root)
    ahead = [*plugins(root, found)]
    for name in ALWAYS:
        ahead += files(root / name) if (root / name).is_dir() else [root / name]
    for role in roles:
        ahead += [path for path in files(root / "roles" / role) if path.name != "README.md"]
    picked: dict[str, BundleFile] = {}
    while ahead:
        path = ahead.pop()
        name = path.relative_to(root).as_posix()
        if name not in picked:
            picked[name] = read(path)
            ahead += imported(root, picked[name].data.decode(errors="replace")) if path.suffix == ".py" else []
    return picked, roles


def files(folder: Path) -> list[Path]:
    """Return the files below a directory, sorted; none that an interpreter left behind."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def read(path: Path) -> BundleFile:
    """Return a file; of its mode counts only whether it is a program, for that is all that git keeps."""
    return BundleFile(path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)


# The file that a bundle is: the same content makes the same bytes.


NAME = "hpcai-node"
SUMS = "SHA256SUMS"
SHORT = 12
_SECRET = re.compile(r"(^|_)(password|passwd|passphrase|secret|token|sas|credentials?|(?<!public_)key)$", re.IGNORECASE)


def sums(files: t.Mapping[str, BundleFile]) -> str:
    """Return the digests of all files, as sha256sum -c reads them."""
    bad = sorted(path for path in files if "\n" in path or "\\" in path)
    if bad:
        raise BundleError(f"no bundle can hold a file with such a name: {bad[0]!r}")
    return "".join(f"{sha256(files[path].data)}  {path}\n" for path in sorted(files))


def digest(text: str) -> str:
    """Return what a bundle is called by."""
    return sha256(text.encode())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def version(told: str) -> str:
    """Return the number of a version made from a digest, for those who want three numbers."""
    return f"1.0.{int(told[:8], 16)}"


def folder(told: str) -> str:
    return f"{NAME}-{told[:SHORT]}"


def pack(files: t.Mapping[str, BundleFile], name: str) -> bytes:
    """Return the archive: sorted, of root, without times."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(files):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mode = len(files[path].data), files[path].mode
            archive.addfile(entry, io.BytesIO(files[path].data))
    return gzip.compress(out.getvalue(), compresslevel=6, mtime=0)


def intact(path: Path, name: str, told: str) -> bool:
    """Return whether a bundle is there already, with the content that is wanted."""
    try:
        with tarfile.open(path) as archive:
            found = {entry.name: archive.extractfile(entry) for entry in archive if entry.isfile()}
            read = {key[len(name) + 1 :]: BundleFile(file.read()) for key, file in found.items() if file}
        text = read.pop(SUMS).data.decode()
        return digest(text) == told and sums(read) == text
    except (OSError, EOFError, KeyError, ValueError, tarfile.TarError):
        return False


def put(data: bytes, path: Path) -> None:
    """Write a file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _owned_files.replace_owned(path, data, "", 0o644)


def document(value: t.Any) -> BundleFile:
    """Return JSON, which is YAML, too, and needs no library on the node."""
    return BundleFile((json.dumps(value, indent=2, sort_keys=True) + "\n").encode())


def secrets(value: t.Any, path: str = "") -> list[str]:
    """Return where names say that a value is a secret; everybody on the node may read it."""
    if isinstance(value, dict):
        return [one for key, inner in value.items() for one in _secret(str(key), inner, f"{path}.{key}".lstrip("."))]
    if isinstance(value, list):
        return [one for number, inner in enumerate(value) for one in secrets(inner, f"{path}[{number}]")]
    return []


def _secret(key: str, inner: t.Any, path: str) -> list[str]:
    if isinstance(inner, str) and inner and _SECRET.search(key):
        return [path]
    return secrets(inner, path)


# What a bundle holds of others: collections as they are, and what is in wheels.


# Of wheels; of collections, tests and what belongs to no release.
LEFT_OUT = ("ansible_test/",)
_BESIDE = ("tests", "docs", ".git", ".github", ".build")


def whole(name: str, places: t.Sequence[str]) -> dict[str, BundleFile]:
    """Return the files of another collection, from the first place that has it."""
    below = Path("ansible_collections", *name.split("."))
    roots = [Path(place).expanduser() / below for place in places]
    root = next((one for one in roots if one.is_dir()), None)
    if root is None or len(below.parts) != 3:
        raise BundleError(f"there is no collection {name} in {', '.join(str(Path(place)) for place in places)}")
    inside = {path.relative_to(root): path for path in files(root)}
    return {told.as_posix(): read(path) for told, path in inside.items() if told.parts[0] not in _BESIDE}


def site(folders: t.Sequence[Path]) -> dict[str, BundleFile]:
    """Return what is in the wheels of the directories, one for each Python; what they share has to be the same."""
    found: dict[str, BundleFile] = {}
    wheels = [wheel for folder in folders for wheel in sorted(folder.glob("*.whl"))]
    if not wheels:
        raise BundleError(f"no wheels in {', '.join(map(str, folders)) or 'any directory'}")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith("/") or name.startswith(LEFT_OUT) or ".data/" in name:
                    continue
                file = BundleFile(archive.read(name))
                # What a wheel says of itself names its Python.
                if found.setdefault(name, file) != file and ".dist-info/" not in name:
                    raise BundleError(f"{wheel} holds another {name} than a wheel for another Python")
    return found


# From the inputs of a bundle to its file.


SCHEMA = 1
# Executed by a shell that is named, but a person may not know.
_PROGRAMS = ("bootstrap.sh",)


class BundleRequest(t.NamedTuple):
    dest: str
    collection: str
    wheels: t.Sequence[str]
    scripts: t.Mapping[str, str]
    groups: t.Sequence[str]
    variables: t.Mapping[str, t.Any]
    collections: t.Sequence[str]
    places: t.Sequence[str]
    budget: int


class Bundle(t.NamedTuple):
    files: dict[str, BundleFile]
    digest: str
    manifest: dict[str, t.Any]


def refuse(wish: BundleRequest) -> None:
    """Say everything that is wrong with the inputs."""
    wrong = [
        f"{path} looks like a secret, and whoever has the bundle reads it" for path in secrets(dict(wish.variables))
    ]
    if "slurm_compute" not in wish.groups:
        wrong.append("node_bundle_groups lacks slurm_compute, and node.yml is for that group")
    slurm = wish.variables.get("cluster_slurm", "ours")
    if slurm not in ("ours", "cyclecloud"):
        wrong.append(f"cluster_slurm is {slurm!r}; accepted: ours, cyclecloud")
    if slurm == "ours":
        needed = ("cluster_name", "slurm_controller_hosts")
        wrong += [
            f"{name} is missing, and slurmd needs it (cluster_slurm is ours)"
            for name in needed
            if not wish.variables.get(name)
        ]
    if not wish.variables.get("cluster_sku"):
        wrong.append("cluster_sku is missing: tuning, scratch and health check follow the machine type")
    if wish.budget < 1:
        wrong.append(f"the budget is {wish.budget} seconds")
    if wrong:
        raise BundleError("; ".join(wrong))


def build(wish: BundleRequest, check: bool = False) -> Bundle:
    """Read what belongs to a bundle; in check mode the wheels may be still to come."""
    refuse(wish)
    ours, roles = collection(Path(wish.collection))
    files = {f"collections/ansible_collections/hpcai/gpu_cluster/{path}": file for path, file in ours.items()}
    for name in wish.collections:
        below = "/".join(["collections/ansible_collections", *name.split(".")])
        files.update({f"{below}/{path}": file for path, file in whole(name, wish.places).items()})
    wheels = [Path(folder).expanduser() for folder in wish.wheels]
    packages = {} if check and not all(folder.is_dir() for folder in wheels) else site(wheels)
    files.update({f"site/{path}": file for path, file in packages.items()})
    for name, text in wish.scripts.items():
        files[name] = BundleFile(text.encode(), 0o755 if name in _PROGRAMS else 0o644)
    inventory: dict[str, t.Any] = {group: {"hosts": {"node": {}}} for group in wish.groups}
    files["inventory.yml"] = document({"all": {"children": inventory}})
    files["vars.yml"] = document(wish.variables)
    manifest = {
        "schema": SCHEMA,
        "packages": sorted({path.split(".dist-info/")[0] for path in packages if ".dist-info/" in path}),
        "collections": sorted(["hpcai.gpu_cluster", *wish.collections]),
        "roles": roles,
        "groups": list(wish.groups),
        "budget": wish.budget,
    }
    files["manifest.json"] = document(manifest)
    return Bundle(files, digest(sums(files)), manifest)


def keep(wish: BundleRequest, check: bool) -> tuple[bool, dict[str, t.Any]]:
    """Have the file; return whether it had to be written, and what it is."""
    bundle = build(wish, check)
    name = folder(bundle.digest)
    path = Path(wish.dest).expanduser() / f"{name}.tar.gz"
    changed = not intact(path, name, bundle.digest)
    if changed:
        data = pack({**bundle.files, SUMS: BundleFile(sums(bundle.files).encode())}, name)
        if not check:
            put(data, path)
    else:
        data = path.read_bytes()
    told = {"path": str(path), "name": path.name, "folder": name, "sha256": sha256(data), "size": len(data)}
    return changed, {
        **told,
        "digest": bundle.digest,
        "version": version(bundle.digest),
        "manifest": bundle.manifest,
    }


# Which bundles of a shared directory nobody can ask for any more.


_BUNDLE = re.compile(rf"{NAME}-[0-9a-f]{{{SHORT}}}\.tar\.gz")


class PruneRequest(t.NamedTuple):
    """The bundle of today, how many before it stay, and for how many seconds any does after it was replaced."""

    current: str
    keep: int
    grace: float
    named: t.Collection[str] = ()


def found(folder: Path) -> dict[str, float]:
    """Return the bundles of a directory, each with when it became the one of its day; nothing else is looked at."""
    if not folder.is_dir():
        return {}
    listed = [entry for entry in os.scandir(folder) if _BUNDLE.fullmatch(entry.name) and entry.is_file()]
    return {entry.name: entry.stat().st_mtime for entry in listed}


def named(files: t.Iterable[Path]) -> set[str]:
    """Return the bundles that user-data names; a file that is not there names none."""
    told: set[str] = set()
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            told.update(_BUNDLE.findall(path.read_text(encoding="utf-8", errors="replace")))
    return told


def returned(times: t.Mapping[str, float], current: str) -> bool:
    """Say whether an older bundle is in use again: then it has to become the newest, for the order to be true."""
    return current in times and any(times[name] > times[current] for name in times)


def plan(times: t.Mapping[str, float], wish: PruneRequest, now: float) -> list[str]:
    """Return what may go.

    A node copies its bundle when it boots for the first time, and is told which by the user-data that it was created
    with. So what counts is when a bundle was replaced: that is when the next one came.
    """
    if wish.current not in times:
        return []
    newest = {**times, wish.current: now} if returned(times, wish.current) else dict(times)
    order = sorted(newest, key=lambda name: (name != wish.current, -newest[name]))
    going = []
    for place, name in enumerate(order[1:], 1):
        replaced = newest[order[place - 1]]
        if place > wish.keep and name not in wish.named and now - replaced > wish.grace:
            going.append(name)
    return going


def bring(folder: Path, wish: PruneRequest, now: float, check: bool) -> tuple[bool, list[str], list[str]]:
    """Remove what may go; return whether anything was to be done, what went and what stays."""
    times = found(folder)
    going, again = plan(times, wish, now), returned(times, wish.current)
    if again and not check:
        os.utime(folder / wish.current, (now, now))
    for name in [] if check else going:
        with contextlib.suppress(FileNotFoundError):  # another controller did it
            (folder / name).unlink()
    return bool(going or again), going, sorted(set(times) - set(going))
