# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""azcopy: one pinned release, proved before use; lists a URL, sends and fetches single files."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _files, _process, _sources, _trusted
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint import files
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import CheckpointError

# Runs azcopy: lists a URL, sends and fetches single files.


_COMMON = ["--output-type", "json", "--skip-version-check", "--log-level", "ERROR"]
_HINTS = {
    "ContainerNotFound": "create the container, or correct the destination",
    "AuthorizationPermissionMismatch": "the identity lacks the role Storage Blob Data Contributor on the account",
    "AuthorizationFailure": "the account's network rules or the identity's roles do not allow it",
    "AuthenticationFailed": "the identity, its secret or the token is wrong, or has expired",
    "InvalidAuthenticationInfo": "the identity, its secret or the token is wrong, or has expired",
    "no SAS token or OAuth token": "no identity is set: see checkpoint_upload_identity",
    "setpriv: failed to execute": "it cannot be started on this node",
    "libsecret": "this build of azcopy needs libsecret: add its package to checkpoint_upload_packages",
}


class Azcopy(t.NamedTuple):
    """azcopy with its environment; the token is only of those who have to use one."""

    path: str
    environment: t.Mapping[str, str]
    target: str
    token: str = ""
    answer_timeout: float = 60
    copy_timeout: float = 86400

    def blobs(self) -> dict[str, files.Blob]:
        """Return the blobs below the target."""
        url = files.blob_url(self.target, "", self.token)
        argv = ["list", url, "--properties", "ContentMD5", "--machine-readable"]
        return files.listing(self._run(argv, self.answer_timeout, f"list {self.target}"))

    def send(self, source: Path, name: str, cap_mbps: int) -> None:
        """Send one file and have its MD5 kept beside it."""
        argv = ["copy", str(source), files.blob_url(self.target, name, self.token), "--from-to", "LocalBlob"]
        argv += ["--put-md5", "--overwrite", "true", "--cap-mbps", str(cap_mbps)]
        self._copy(argv, f"send {source} to {self.target}/{name}")

    def fetch(self, name: str, into: str) -> None:
        """Fetch a blob and compare what arrives with the MD5 that the service keeps; the null device takes it, too."""
        argv = ["copy", files.blob_url(self.target, name, self.token), into, "--from-to", "BlobLocal"]
        argv += ["--check-md5", "FailIfDifferentOrMissing", "--overwrite", "true"]
        self._copy(argv, f"fetch {self.target}/{name}")

    def remove(self, name: str) -> None:
        """Remove a blob."""
        argv = ["remove", files.blob_url(self.target, name, self.token), "--from-to", "BlobTrash"]
        self._copy(argv, f"remove {self.target}/{name}")

    def _copy(self, argv: list[str], what: str) -> None:
        output = self._run(argv, self.copy_timeout, what)
        if not files.finished(output):
            raise CheckpointError(_failed(what, files.problem(output)))

    def _run(self, argv: list[str], timeout: float, what: str) -> str:
        # Many run side by side in threads, where _child cannot see to this: none outlives us, not even after SIGKILL.
        wrapper = [setpriv, "--pdeathsig", "KILL"] if (setpriv := shutil.which("setpriv")) else []
        # It reads its standard input for a word that would end it, and at the end again and again: a core for nothing.
        done = _process.run([*wrapper, self.path, *argv, *_COMMON], timeout, environment=self.environment, silent=True)
        if done.rc == 0:
            return done.out
        if done.rc is None and done.seconds >= timeout:
            raise CheckpointError(
                f"azcopy could not {what} within {timeout:g} s: does {socket.gethostname()} reach the account"
                " (name, route, firewall, proxy, private endpoint)?"
            )
        raise CheckpointError(_failed(what, files.problem(done.out or done.err)))


def _failed(what: str, message: str) -> str:
    hint = next((f": {text}" for mark, text in _HINTS.items() if mark in message), "")
    return f"azcopy could not {what}: {message}{hint}"


# Has one pinned azcopy in a directory, proved before anything uses it.


# Releases have it in a directory of their own; the npm package holds only the program, with the architecture's name.
_NAMES = {"x86_64": ("azcopy", "azcopy_linux_amd64"), "aarch64": ("azcopy", "azcopy_linux_arm64")}
_LOCK = ".lock"


class AzcopyPin(t.NamedTuple):
    """The release of azcopy that a directory should hold, from an archive with this digest."""

    directory: Path
    version: str
    sha256: str

    @property
    def home(self) -> Path:
        return self.directory / "azcopy" / f"{self.version}-{self.sha256[:12]}"

    @property
    def link(self) -> Path:
        return self.directory / "bin/azcopy"

    @property
    def target(self) -> str:
        return os.path.relpath(self.home / "azcopy", self.link.parent)


def check(pin: AzcopyPin) -> None:
    """Raise CheckpointError for a malformed pin, before anything is fetched."""
    if not re.fullmatch(r"[0-9a-f]{64}", pin.sha256):
        raise CheckpointError(f"sha256 of azcopy is {pin.sha256!r}; 64 hexadecimal digits are needed")
    if not re.fullmatch(r"10\.[0-9]+\.[0-9]+", pin.version):
        raise CheckpointError(f"version of azcopy is {pin.version!r}; one like 10.32.2 is needed")


def state(pin: AzcopyPin) -> tuple[bool, bool]:
    """Return whether that azcopy is installed, and whether it is the one in use; refuses one that others put there."""
    trusted = _trusted.trusted_users()
    program = pin.home / "azcopy"
    _nobody_elses(_trusted.check, pin)
    present = program.is_file()
    if present and (foreign := _trusted.distrust(str(program), trusted)):
        raise CheckpointError(f"{program} is not used: {foreign}. Move {pin.home} away to have it installed again")
    ours = pin.link.is_symlink() and pin.link.lstat().st_uid in trusted
    return present, present and ours and os.readlink(pin.link) == pin.target


def _nobody_elses(act: t.Callable[[str, t.AbstractSet[int]], None], pin: AzcopyPin) -> None:
    """Check or make the directories whose programs all users run."""
    for directory in (pin.home.parent, pin.link.parent):
        try:
            act(str(directory), _trusted.trusted_users())
        except _trusted.TrustError as exc:
            raise CheckpointError(f"no programs are kept in {directory}: {exc}") from exc


def install(pin: AzcopyPin, archive: str) -> None:
    """Unpack azcopy aside, prove it, then rename it into place; a run that was cut off leaves nothing in use."""
    _nobody_elses(_trusted.make, pin)
    with _files.lock(pin.home.parent / _LOCK):
        if not state(pin)[0]:
            aside = Path(tempfile.mkdtemp(prefix="new-", dir=pin.home.parent))
            try:
                program = _find(Path(_sources.unpack(archive, f"sha256:{pin.sha256}", aside / "archive")))
                program.replace(aside / "azcopy")
                (aside / "azcopy").chmod(0o755)
                prove(aside / "azcopy", pin.version)
                shutil.rmtree(aside / "archive")
                aside.chmod(0o755)
                aside.rename(pin.home)
            except (_sources.SourceError, OSError) as exc:
                raise CheckpointError(str(exc)) from exc
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        _use(pin)


def _find(root: Path) -> Path:
    names = _NAMES.get(platform.machine(), ("azcopy",))
    programs = [path for path in sorted(root.rglob("*")) if path.name in names and path.is_file()]
    if len(programs) != 1:
        raise CheckpointError(f"the archive of azcopy holds {len(programs)} programs {' or '.join(names)}, not one")
    return programs[0]


def prove(program: Path, version: str) -> None:
    """Run the program for its version: one for another machine, or without its libraries, does not start."""
    done = _process.run([str(program), "--version"], 60)
    output = f"{done.out} {done.err}"
    if "libsecret" in output and done.rc != 0:
        raise CheckpointError(
            "this build of azcopy is linked with libsecret, which this host lacks: install its package (libsecret-1-0"
            " on Debian and Ubuntu) with checkpoint_upload_packages, or take an archive of an azcopy release"
        )
    if done.rc != 0:
        raise CheckpointError(f"azcopy of the archive does not start: {done.problem}")
    if f"azcopy version {version}" not in done.out.splitlines():
        raise CheckpointError(f"the archive holds {done.out.strip()[:100]!r}, not azcopy {version}")


def _use(pin: AzcopyPin) -> None:
    fresh = pin.link.with_name(".azcopy.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(pin.target)
    fresh.replace(pin.link)
