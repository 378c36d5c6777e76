# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images of nodes: what one says of itself, whether it is older than its cluster, and what may not stay in one.

The first part is also the node agent's; the others run where an image is baked. Private, stdlib only.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import hashlib
import json
import os
import re
import stat
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._files import open_regular, replace

# What an image says of itself, and how it stands to a cluster.


PATH = "/etc/hpcai/image.json"
SCHEMA = 1
# What is compared, and what people call it.
PARTS = {"collection": "hpcai.gpu_cluster", "slurm": "Slurm", "driver": "the GPU driver"}
_VERSION = re.compile(r"(?:\d+:)?(\d+(?:\.\d+)*)")
_LARGEST = 1 << 20


class ImageError(ValueError):
    """An image cannot be read or made; the text is fit for the user."""


def read_record(path: str = PATH) -> dict[str, t.Any] | None:
    """Return what the image says that this machine was started from; None where it was started from none of ours."""
    try:
        with open_regular(path) as file:
            record = json.loads(file.read(_LARGEST).decode())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as exc:
        raise ImageError(f"{path} cannot be read: {exc}") from exc
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise ImageError(f"{path} is no description of an image: a mapping with schema {SCHEMA} is needed")
    return record


def older(record: t.Mapping[str, t.Any], cluster: t.Mapping[str, t.Any]) -> list[str]:
    """Say in what an image is older than its cluster; what one of them does not name is not compared."""
    parts = []
    for part, called in PARTS.items():
        have, want = _numbers(record.get(part)), _numbers(cluster.get(part))
        shared = min(len(have), len(want))
        if have[:shared] < want[:shared]:
            parts.append(f"{called} {record[part]}, the cluster has {cluster[part]}")
    return parts


def _numbers(version: t.Any) -> tuple[int, ...]:
    """Return the upstream numbers of a version; none of what is no version."""
    match = _VERSION.match(version) if isinstance(version, str) else None
    return tuple(int(number) for number in match[1].split(".")) if match else ()


# What a machine has that is its own, or a secret: read below a root directory, which may be a mounted image.


class Trace(t.NamedTuple):
    """Something of one machine that no other may have; ``action`` is remove, or empty for a file that has to exist."""

    path: str
    action: str


class Secret(t.NamedTuple):
    """Something that a person has put on the machine and that nobody else may have."""

    path: str
    reason: str


# What the system, a package or this collection has made by itself; much of it is what virt-sysprep(1) removes.
_REMOVED = (
    "etc/hpcai/*",
    "etc/munge/munge.key",  # the package makes one
    "etc/ssh/ssh_host_*",
    "root/.ansible",
    "root/.bash_history",
    "root/.python_history",
    "root/.lesshst",
    "root/.viminfo",
    "root/.ssh/known_hosts*",
    "home/*/.ansible",
    "home/*/.bash_history",
    "home/*/.python_history",
    "home/*/.lesshst",
    "home/*/.viminfo",
    "home/*/.ssh/known_hosts*",
    "boot/efi/loader/random-seed",
    "tmp/*",
    "var/cache/apt/archives/*.deb",
    "var/cache/dnf/*",
    "var/lib/NetworkManager/*.lease",
    "var/lib/NetworkManager/secret_key",
    "var/lib/cloud/*",
    "var/lib/dbus/machine-id",
    "var/lib/dhclient/*",
    "var/lib/dhcp/*.leases*",
    "var/lib/dhcpcd/*",
    # Who has installed which driver and holds it (nvidia_driver.json and others) is the image's, too, and stays.
    "var/lib/hpcai/agent",
    "var/lib/hpcai/node",
    "var/lib/hpcai/nvme_scratch.json",
    "var/lib/hpcai/reconcile",
    "var/lib/hpcai/results",
    "var/lib/munge/*",
    "var/lib/systemd/credential.secret",
    "var/lib/systemd/random-seed",
    "var/lib/waagent/*.crt",
    "var/lib/waagent/*.p7m",
    "var/lib/waagent/*.pem",
    "var/lib/waagent/*.prv",
    "var/lib/waagent/*.xml",
    "var/lib/waagent/provisioned",
    "var/log/journal/*",
    "var/log/*.gz",
    "var/log/*.[0-9]",
    "var/log/*/*.gz",
    "var/log/*/*.[0-9]",
    "var/spool/slurmd/*",
    "var/tmp/*",
)
# An empty machine-id is that of an image which more than one machine starts from, machine-id(5).
_EMPTIED = ("etc/machine-id", "var/log/*", "var/log/*/*", "var/log/*/*/*")
_KEPT = ("etc/hpcai/image.json", "var/lib/cloud/seed")
# Running services have theirs there, and so has the module that removes them.
_IN_USE = re.compile(r"(?:var/)?tmp/(?:systemd-private-|ansible|\.ansible|\.X11-unix|\.ICE-unix)")
_CREDENTIALS = (
    ".aws/credentials",
    ".azure/accessTokens.json",
    ".azure/msal_token_cache.json",
    ".config/enroot/.credentials",
    ".config/gcloud/application_default_credentials.json",
    ".config/gcloud/credentials.db",
    ".docker/config.json",
    ".git-credentials",
    ".kube/config",
    ".my.cnf",
    ".netrc",
    ".pgpass",
    ".vault-token",
)
_SECRETS = {
    **{f"{home}/{name}": "holds credentials" for home in ("root", "home/*") for name in _CREDENTIALS},
    "etc/apt/auth.conf": "holds credentials",
    "etc/apt/auth.conf.d/*": "holds credentials",
    "etc/slurm/*.key": "is a key of Slurm",
    "etc/slurm/slurmdbd.conf": "holds the password of a database",
    "var/lib/dkms/mok.key": "signs kernel modules",
    "var/lib/shim-signed/mok/MOK.priv": "signs kernel modules",
}
_KEY = re.compile(rb"^-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----", re.MULTILINE)
_PASSWORD = re.compile(r"^([^:#]+):[!*]*\$[^:]+:", re.MULTILINE)
_MOUNTED_WITH = re.compile(r"^[^#\n]*[\s,]pass(?:word)?2?=", re.MULTILINE)
_SEARCHED = ("etc", "home", "opt", "root", "srv", "var/lib")
_NOT_SEARCHED = (
    "dist-packages",
    "site-packages",
    "var/lib/apt",
    "var/lib/containers",
    "var/lib/docker",
    "var/lib/dpkg",
)
_KEY_SIZE = 1 << 16
# A node that was one already has addresses, units and mounts of its cluster in places that no list has.
_OF_A_CLUSTER = {
    "etc/slurm/slurm.conf": "the configuration of Slurm",
    "etc/systemd/system/hpcai-*": "a unit of a node",
    "etc/systemd/system/slurmd.service.d/*hpcai*": "the slurmd of a cluster",
    "var/lib/hpcai/node/current": "a bundle that the node configures itself from",
}
_OF_AN_IMAGE = "etc/systemd/system/hpcai-host-keys.service"


def of_a_cluster(root: Path) -> list[str]:
    """Say what shows that the machine is a part of a cluster already."""
    places = [(path, what) for pattern, what in _OF_A_CLUSTER.items() for path in _matches(root, pattern)]
    return [f"/{path} is {what}" for path, what in sorted(places) if path != _OF_AN_IMAGE]


def traces(root: Path, more: t.Sequence[str] = (), keep: t.Sequence[str] = ()) -> list[Trace]:
    """Return what has to go, parents before what is in them.

    ``more`` are patterns of absolute paths; ``keep`` are absolute paths that stay, with what is below them.
    """
    meant = [*_KEPT, *_relative(keep)]
    gone = [path for pattern in (*_REMOVED, *_relative(more)) for path in _matches(root, pattern)]
    gone = sorted({path for path in gone if not _IN_USE.match(path) and not _below(path, meant)})
    for path in meant:
        if _below(path, gone) and os.path.lexists(root / path):
            raise ImageError(f"/{path} is to be kept, and is in /{_first(path, gone)}, which is removed; name that")
    removed = [path for number, path in enumerate(gone) if not _below(path, gone[:number])]
    emptied = [path for pattern in _EMPTIED for path in _matches(root, pattern)]
    emptied = [path for path in emptied if not _below(path, [*removed, *meant]) and _size(root / path)]
    return [Trace(path, "remove") for path in removed] + [Trace(path, "empty") for path in sorted(set(emptied))]


def _relative(patterns: t.Iterable[str]) -> list[str]:
    relative = [pattern.lstrip("/") for pattern in patterns]
    if not all(relative) or any(".." in Path(pattern).parts for pattern in relative):
        raise ImageError(f"{list(patterns)} has a path that is none of a file: absolute paths without .. are needed")
    return relative


def _matches(root: Path, pattern: str) -> list[str]:
    """Return what a pattern matches; nothing that is reached through a link, which may lead anywhere."""
    home = root.resolve()
    paths = [path for path in home.glob(pattern) if path.parent.resolve() == path.parent]
    return [path.relative_to(home).as_posix() for path in paths]


def _below(path: str, folders: t.Collection[str]) -> bool:
    return path in folders or any(parent.as_posix() in folders for parent in Path(path).parents)


def _first(path: str, folders: t.Collection[str]) -> str:
    return next(parent.as_posix() for parent in Path(path).parents if parent.as_posix() in folders)


def _size(path: Path) -> int:
    status = path.lstat()
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def secrets(root: Path, gone: t.Collection[str], keep: t.Sequence[str] = ()) -> list[Secret]:
    """Return the secrets that would stay, apart from those that are meant to (``keep``, absolute paths)."""
    hits = [Secret(path, why) for pattern, why in _SECRETS.items() for path in _matches(root, pattern)]
    hits += [
        Secret("etc/shadow", f"has a password of {name}") for name in _PASSWORD.findall(_text(root / "etc/shadow"))
    ]
    if _MOUNTED_WITH.search(_text(root / "etc/fstab")):
        hits.append(Secret("etc/fstab", "has a password among the options of a mount"))
    named = {secret.path for secret in hits}
    hits += [Secret(path, "is a private key") for path in _private_keys(root, gone) if path not in named]
    meant = _relative(keep)
    return sorted(secret for secret in hits if not _below(secret.path, gone) and not _below(secret.path, meant))


def _text(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return file.read(_LARGEST).decode(errors="replace")
    except OSError:
        return ""


def _private_keys(root: Path, gone: t.Collection[str]) -> t.Iterator[str]:
    for tree in _SEARCHED:
        for folder, folders, files in os.walk(root / tree):
            here = Path(folder).relative_to(root)
            folders[:] = [name for name in folders if not _skipped((here / name).as_posix(), gone)]
            for name in files:
                with contextlib.suppress(OSError), open_regular(Path(folder, name)) as file:
                    if os.fstat(file.fileno()).st_size <= _KEY_SIZE and _KEY.search(file.read()):
                        yield (here / name).as_posix()


def _skipped(path: str, gone: t.Collection[str]) -> bool:
    return path in gone or path in _NOT_SEARCHED or path.rpartition("/")[2] in _NOT_SEARCHED


# The image: its description made of what is installed, and the traces removed.


SLURM = ("slurmd", "slurm-smd-slurmd", "slurm-slurmd")


class BakeRequest(t.NamedTuple):
    """What the caller knows of an image, and the image does not."""

    collection: str
    date: str
    driver: str = ""
    bundle: str = ""
    named: t.Sequence[str] = ()


def describe(root: Path, packages: t.Mapping[str, str], request: BakeRequest) -> dict[str, t.Any]:
    """Return what the image is to say of itself; ``packages`` are all that are installed, with their versions."""
    release = dict(
        re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)', _text((root / "etc/os-release").resolve()), re.MULTILINE)
    )
    slurm = next((packages[name] for name in SLURM if name in packages), "")
    upstream = _VERSION.match(slurm)
    listed = "".join(f"{name}={packages[name]}\n" for name in sorted(packages))
    shown = {name: packages[name] for name in sorted(packages) if _named(name, request.named)}
    return {
        "schema": SCHEMA,
        "collection": request.collection,
        "date": request.date,
        "system": f"{release.get('ID', '')} {release.get('VERSION_ID', '')}".strip(),
        "kernel": max((path.name for path in root.glob("lib/modules/*")), key=_numbers, default=""),
        "slurm": upstream[1] if upstream else "",
        "driver": request.driver,
        "bundle": request.bundle,
        "packages": shown,
        "packages_digest": hashlib.sha256(listed.encode()).hexdigest(),
    }


def _named(name: str, patterns: t.Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def settled(before: t.Mapping[str, t.Any] | None, record: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the description with the date of the one that is there, where that says the same."""
    same = before is not None and {**before, "date": ""} == {**record, "date": ""}
    return {**record, "date": before["date"]} if same and before is not None else record


# What the image has so that each of its machines makes its own, and Ansible's facts show what it says of itself.
_UNIT = """\
# Made by hpcai.gpu_cluster: an image has no SSH host keys, and not every system makes them at boot.
[Unit]
Description=Make SSH host keys where there are none
After=local-fs.target cloud-init.service cloud-init-network.service
Before=ssh.service sshd.service
ConditionPathExistsGlob=!/etc/ssh/ssh_host_*_key

[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -A

[Install]
WantedBy=multi-user.target
"""
_LINKS = {
    "etc/ansible/facts.d/hpcai_image.fact": PATH,
    "etc/systemd/system/multi-user.target.wants/hpcai-host-keys.service": f"/{_OF_AN_IMAGE}",
}
_UNITS = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")


def files(record: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Return the files that the image is given."""
    return {PATH.lstrip("/"): json.dumps(record, indent=2) + "\n", _OF_AN_IMAGE: _UNIT}


def unwritten(root: Path, record: t.Mapping[str, t.Any]) -> list[str]:
    """Return those of the image's files and links that are not there, or say something else."""
    stale = [name for name, text in files(record).items() if _text(root / name) != text]
    return stale + [name for name, target in _LINKS.items() if _target(root / name) != target]


def _target(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def write(root: Path, record: t.Mapping[str, t.Any]) -> None:
    """Write what is missing of the image's own files and links."""
    texts = files(record)
    for name in unwritten(root, record):
        path = root / name
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if name in texts:
            replace(path, texts[name], mode=0o644)
            continue
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        path.symlink_to(_LINKS[name])


def enabled(root: Path, services: t.Iterable[str]) -> list[str]:
    """Return those services that would start at boot."""
    there = [name for name in services if any((root / directory / f"{name}.service").exists() for directory in _UNITS)]
    return [name for name in there if _matches(root, f"etc/systemd/system/*.wants/{name}.service")]


def clean(root: Path, traces: t.Iterable[Trace]) -> None:
    """Remove and empty; what was in a small file is overwritten first, as an image also has the blocks of no file.

    Everything is reached by open directories, so that nobody who owns one of them can lead this elsewhere.
    """
    for trace in traces:
        parent, dummy, name = trace.path.rpartition("/")
        with _folder(root, parent) as handle:
            if trace.action == "remove":
                _remove(handle, name)
            else:
                os.close(os.open(name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle))


@contextlib.contextmanager
def _folder(root: Path, path: str) -> t.Iterator[int]:
    """Open a directory below the root; raises OSError where a part of the path is a link."""
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in Path(path).parts:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def _remove(handle: int, name: str) -> None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
        _remove_file(handle, name)
        return
    for dummy, folders, files_here, inner in os.fwalk(name, topdown=False, dir_fd=handle):
        for file in files_here:
            _remove_file(inner, file)
        for folder in folders:
            _remove_folder(inner, folder)
    _remove_folder(handle, name)


def _remove_folder(handle: int, name: str) -> None:
    """Remove a directory, or a link to one; a service that still writes there keeps it."""
    if stat.S_ISLNK(os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=handle)
        return
    try:
        os.rmdir(name, dir_fd=handle)
    except OSError as exc:
        if exc.errno != errno.ENOTEMPTY:
            raise


def _remove_file(handle: int, name: str) -> None:
    status = os.stat(name, dir_fd=handle, follow_symlinks=False)
    # What has a second name is not removed by removing one, and stays as it is.
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size <= _LARGEST:
        with os.fdopen(os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle), "wb") as file:
            file.write(bytes(status.st_size))
            file.flush()
            os.fsync(file.fileno())
    os.unlink(name, dir_fd=handle)
