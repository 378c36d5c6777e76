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

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _owned_files, _secrets

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
# Where the version stands: in an installed collection in the first, in a clone in the second.
VERSION = ("MANIFEST.json", "galaxy.yml")
_NAME = re.compile(r"\bhpcai\.gpu_cluster\.(\w+)")
_PROGRAM = re.compile(r"hpcai\.gpu_cluster\.node_program',\s*'([\w.]+)'")
_OURS = r"ansible_collections\.hpcai\.gpu_cluster\.plugins\."
_FROM = re.compile(rf"^\s*from {_OURS}([\w.]+) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_IMPORT = re.compile(rf"^\s*import {_OURS}([\w.]+)", re.MULTILINE)
# The files of a role that call others; its README and its specification only mention them.
_CALLS = ("tasks", "handlers", "defaults", "vars", "templates")


class BundleError(ValueError):
    """No bundle can be made; the text is fit for the user."""


class BundleFile(t.NamedTuple):
    data: bytes
    mode: int = 0o644


class Called(t.NamedTuple):
    """The roles and plugins that texts name, and the programs that they put on the node."""

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
    calls = Called(set(), set())
    while read_ahead:
        for text in read_ahead:
            calls.names.update(_NAME.findall(text))
            calls.programs.update(_PROGRAM.findall(text))
        new = {name for name in calls.names - roles if (root / "roles" / name / "tasks").is_dir()}
        roles |= new
        read_ahead = [text for role in sorted(new) for text in texts(root / "roles" / role)]
    return sorted(roles), calls


def plugins(root: Path, calls: Called) -> list[Path]:
    """Return the plugins that are named; a file of filters has several, each with a page."""
    picked = []
    for kind in ("action", "lookup", "modules"):
        picked += [path for path in files(root / "plugins" / kind) if path.stem in calls.names]
    for path in files(root / "plugins/filter"):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py" and any(f'"{name}"' in text for name in calls.names):
            picked += [
                path,
                *(page for page in files(path.parent) if page.suffix == ".yml" and f'"{page.stem}"' in text),
            ]
    for name in sorted(calls.programs):
        picked.append(module_file(root, f"module_utils.{name}"))
    return picked


def module_file(root: Path, module: str) -> Path:
    """Return the file of a module or package below plugins."""
    path = root.joinpath("plugins", *module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(root: Path, text: str) -> set[Path]:
    """Return the files that a Python text needs of this collection; fragments of documentation declare options."""
    modules = set(_IMPORT.findall(text))
    for module, names in _FROM.findall(text):
        modules |= {module, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
    modules |= {f"doc_fragments.{name}" for name in _NAME.findall(text)}
    return {path for path in (module_file(root, module) for module in modules) if path.is_file()}


def collection(root: Path) -> tuple[dict[str, BundleFile], list[str]]:
    """Return the files of this collection that a node needs, by their paths in it, and the roles among them."""
    roles, calls = called(root)
    ahead = [*plugins(root, calls), *[root / name for name in VERSION if (root / name).is_file()][:1]]
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
MODE = 0o600


def sums(files: t.Mapping[str, BundleFile]) -> str:
    """Return the digests of all files, as sha256sum -c reads them."""
    bad = sorted(path for path in files if "\n" in path or "\\" in path)
    if bad:
        raise BundleError(f"no bundle can hold a file with such a name: {bad[0]!r}")
    return "".join(f"{sha256(files[path].data)}  {path}\n" for path in sorted(files))


def digest(text: str) -> str:
    """Return the digest that names a bundle."""
    return sha256(text.encode())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def version(digest: str) -> str:
    """Return the number of a version made from a digest, for those who want three numbers."""
    return f"1.0.{int(digest[:8], 16) & 0x7FFFFFFF}"  # a number of 32 bits with a sign, everywhere


def folder(digest: str) -> str:
    return f"{NAME}-{digest[:SHORT]}"


def pack(files: t.Mapping[str, BundleFile], name: str) -> bytes:
    """Return the archive: sorted, of root, without times."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(files):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mode = len(files[path].data), files[path].mode
            archive.addfile(entry, io.BytesIO(files[path].data))
    return gzip.compress(out.getvalue(), compresslevel=6, mtime=0)


def intact(path: Path, name: str, expected: str) -> bool:
    """Return whether a bundle is there already, with the expected content."""
    try:
        with tarfile.open(path) as archive:
            members = {entry.name: archive.extractfile(entry) for entry in archive if entry.isfile()}
            read = {key[len(name) + 1 :]: BundleFile(file.read()) for key, file in members.items() if file}
        text = read.pop(SUMS).data.decode()
        return digest(text) == expected and sums(read) == text
    except (OSError, EOFError, KeyError, ValueError, tarfile.TarError):
        return False


def put(data: bytes, path: Path) -> None:
    """Write a file in one step, for its owner alone; who hands it to nodes says who else may read it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _owned_files.replace_owned(path, data, "", MODE)


def document(value: t.Any) -> BundleFile:
    """Return JSON, which is YAML, too, and needs no library on the node."""
    return BundleFile((json.dumps(value, indent=2, sort_keys=True) + "\n").encode())


# Which variables go in: those of the inventory that something in the bundle reads, and none that looks like a secret.


_READ = re.compile(r"[A-Za-z_]\w*")
_TEXTS = (".j2", ".yaml", ".yml")
_PLAY_VARIABLE = re.compile(r"^    ([a-z_]+): ", re.MULTILINE)


def read_names(files: t.Mapping[str, BundleFile]) -> set[str]:
    """Return the words of roles and playbooks in a bundle: a variable that is none of them is read by nothing there."""
    names: set[str] = set()
    own: set[str] = set()
    for path, file in files.items():
        parts = path.split("/")
        # A specification only mentions other roles' variables.
        if path.endswith(_TEXTS) and {"roles", "playbooks"} & set(parts) and "argument_specs.yml" not in parts:
            names.update(_READ.findall(file.data.decode(errors="replace")))
        if f"/{path}".endswith(f"/{PLAYBOOK}"):
            own = set(_PLAY_VARIABLE.findall(file.data.decode()))
    # What node.yml sets itself wins over the inventory: users' passwords for registries need not be in the bundle.
    return names - own


def chosen(request: BundleRequest, names: t.Collection[str]) -> tuple[dict[str, t.Any], list[str]]:
    """Return the variables of a bundle, and the names of those of the inventory that stay out of it."""
    left_out = sorted(set(request.inventory) - set(names) - set(request.variables))
    inventory = {name: value for name, value in request.inventory.items() if name not in left_out}
    return {**inventory, **request.variables}, left_out


def secret_problems(request: BundleRequest, variables: t.Mapping[str, t.Any]) -> list[str]:
    """Return what looks like a secret in variables and scripts; everybody who has the bundle reads it."""
    seen = {
        path: kind for path, kind in _secrets.secrets(dict(variables)).items() if path not in set(request.not_secret)
    }
    return [
        f"{path} looks like a secret ({kind}), and whoever has the bundle can read it. Let the node read it from a "
        "file instead, or name the path in node_bundle_not_secret if it is none"
        for path, kind in sorted(seen.items())
    ]


# Other collections, and the content of wheels, in a bundle.


# Of wheels; of collections, tests and what belongs to no release.
LEFT_OUT = ("ansible_test/",)
_BESIDE = ("tests", "docs", ".git", ".github", ".build")


def whole(name: str, search_paths: t.Sequence[str]) -> dict[str, BundleFile]:
    """Return the files of another collection, from the first path that has it."""
    below = Path("ansible_collections", *name.split("."))
    roots = [Path(search_path).expanduser() / below for search_path in search_paths]
    root = next((candidate for candidate in roots if candidate.is_dir()), None)
    if root is None or len(below.parts) != 3:
        raise BundleError(
            f"there is no collection {name} in {', '.join(str(Path(search_path)) for search_path in search_paths)}"
        )
    inside = {path.relative_to(root): path for path in files(root)}
    return {relative.as_posix(): read(path) for relative, path in inside.items() if relative.parts[0] not in _BESIDE}


def site(folders: t.Sequence[Path]) -> dict[str, BundleFile]:
    """Return the files in the wheels of the directories, one for each Python; files of both have to be the same."""
    packages: dict[str, BundleFile] = {}
    wheels = [wheel for folder in folders for wheel in sorted(folder.glob("*.whl"))]
    if not wheels:
        raise BundleError(f"no wheels in {', '.join(map(str, folders)) or 'any directory'}")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith("/") or name.startswith(LEFT_OUT) or ".data/" in name:
                    continue
                file = BundleFile(archive.read(name))
                # The metadata of a wheel names its Python.
                if packages.setdefault(name, file) != file and ".dist-info/" not in name:
                    raise BundleError(f"{wheel} holds another {name} than a wheel for another Python")
    return packages


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
    inventory: t.Mapping[str, t.Any] = {}
    not_secret: t.Sequence[str] = ()


class Bundle(t.NamedTuple):
    files: dict[str, BundleFile]
    digest: str
    manifest: dict[str, t.Any]
    left_out: list[str]


def refuse(request: BundleRequest, variables: t.Mapping[str, t.Any]) -> None:
    """Raise BundleError with everything that is wrong with the inputs."""
    wrong = secret_problems(request, variables)
    if "slurm_compute" not in request.groups:
        wrong.append("node_bundle_groups lacks slurm_compute, and node.yml is for that group")
    slurm = variables.get("cluster_slurm", "ours")
    if slurm not in ("ours", "cyclecloud"):
        wrong.append(f"cluster_slurm is {slurm!r}; accepted: ours, cyclecloud")
    if slurm == "ours":
        needed = ("cluster_name", "slurm_controller_hosts")
        wrong += [
            f"{name} is missing, and slurmd needs it (cluster_slurm is ours)"
            for name in needed
            if not variables.get(name)
        ]
    if not variables.get("cluster_sku"):
        wrong.append("cluster_sku is missing: tuning, scratch and health check follow the machine type")
    if request.budget < 1:
        wrong.append(f"the budget is {request.budget} seconds")
    if wrong:
        raise BundleError("; ".join(wrong))


def build(request: BundleRequest, check: bool = False) -> Bundle:
    """Return the bundle of a request; in check mode the wheels need not be there yet."""
    ours, roles = collection(Path(request.collection))
    files = {f"collections/ansible_collections/hpcai/gpu_cluster/{path}": file for path, file in ours.items()}
    for name in request.collections:
        below = "/".join(["collections/ansible_collections", *name.split(".")])
        files.update({f"{below}/{path}": file for path, file in whole(name, request.places).items()})
    variables, left_out = chosen(request, read_names(files))
    refuse(request, variables)
    wheels = [Path(folder).expanduser() for folder in request.wheels]
    packages = {} if check and not all(folder.is_dir() for folder in wheels) else site(wheels)
    files.update({f"site/{path}": file for path, file in packages.items()})
    for name, text in request.scripts.items():
        files[name] = BundleFile(text.encode(), 0o755 if name in _PROGRAMS else 0o644)
    inventory: dict[str, t.Any] = {group: {"hosts": {"node": {}}} for group in request.groups}
    files["inventory.yml"] = document({"all": {"children": inventory}})
    files["vars.yml"] = document(variables)
    manifest = {
        "schema": SCHEMA,
        "packages": sorted({path.split(".dist-info/")[0] for path in packages if ".dist-info/" in path}),
        "collections": sorted(["hpcai.gpu_cluster", *request.collections]),
        "roles": roles,
        "groups": list(request.groups),
        "budget": request.budget,
    }
    files["manifest.json"] = document(manifest)
    return Bundle(files, digest(sums(files)), manifest, left_out)


def keep(request: BundleRequest, check: bool) -> tuple[bool, dict[str, t.Any]]:
    """Write the file where it is missing; return whether it was, and the facts about it."""
    bundle = build(request, check)
    name = folder(bundle.digest)
    path = Path(request.dest).expanduser() / f"{name}.tar.gz"
    changed = not intact(path, name, bundle.digest)
    if changed:
        data = pack({**bundle.files, SUMS: BundleFile(sums(bundle.files).encode())}, name)
        if not check:
            put(data, path)
    else:
        data = path.read_bytes()
        # An earlier version let everybody read it.
        changed = bool(path.stat().st_mode & 0o777 & ~MODE)
        if changed and not check:
            path.chmod(MODE)
    facts = {"path": str(path), "name": path.name, "folder": name, "sha256": sha256(data), "size": len(data)}
    return changed, {
        **facts,
        "digest": bundle.digest,
        "version": version(bundle.digest),
        "manifest": bundle.manifest,
        "left_out": bundle.left_out,
    }


# Which bundles of a shared directory no node can need any more.


_BUNDLE = re.compile(rf"{NAME}-[0-9a-f]{{{SHORT}}}\.tar\.gz")


class PruneRequest(t.NamedTuple):
    """The bundle of today, how many before it stay, and for how many seconds any does after it was replaced."""

    current: str
    keep: int
    grace: float
    named: t.Collection[str] = ()


def existing(folder: Path) -> dict[str, float]:
    """Return the bundles of a directory, each with the time at which it became the current one."""
    if not folder.is_dir():
        return {}
    listed = [entry for entry in os.scandir(folder) if _BUNDLE.fullmatch(entry.name) and entry.is_file()]
    return {entry.name: entry.stat().st_mtime for entry in listed}


def named(files: t.Iterable[Path]) -> set[str]:
    """Return the bundles that user-data names; a file that is not there names none."""
    names: set[str] = set()
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            names.update(_BUNDLE.findall(path.read_text(encoding="utf-8", errors="replace")))
    return names


def returned(times: t.Mapping[str, float], current: str) -> bool:
    """Say whether an older bundle is in use again: then it has to become the newest, for the order to be true."""
    return current in times and any(times[name] > times[current] for name in times)


def plan(times: t.Mapping[str, float], request: PruneRequest, now: float) -> list[str]:
    """Return the bundles that may be removed.

    A node copies its bundle when it boots for the first time, and the user-data that it was created with names it.
    So what counts is when a bundle was replaced: that is when the next one came.
    """
    if request.current not in times:
        return []
    newest = {**times, request.current: now} if returned(times, request.current) else dict(times)
    order = sorted(newest, key=lambda name: (name != request.current, -newest[name]))
    going = []
    for number, name in enumerate(order[1:], 1):
        replaced = newest[order[number - 1]]
        if number > request.keep and name not in request.named and now - replaced > request.grace:
            going.append(name)
    return going


def prune(folder: Path, request: PruneRequest, now: float, check: bool) -> tuple[bool, list[str], list[str]]:
    """Remove old bundles; return whether anything was to be done, which were removed and which stay."""
    times = existing(folder)
    going, again = plan(times, request, now), returned(times, request.current)
    if again and not check:
        os.utime(folder / request.current, (now, now))
    for name in [] if check else going:
        with contextlib.suppress(FileNotFoundError):  # another controller did it
            (folder / name).unlink()
    return bool(going or again), going, sorted(set(times) - set(going))
