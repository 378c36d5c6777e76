# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs azcopy: lists a place, sends and fetches single files. Private."""

from __future__ import annotations

import shutil
import socket
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _command
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint import remote
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.checkpoint.files import CheckpointError

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
    place: str
    token: str = ""
    answer_timeout: float = 60
    copy_timeout: float = 86400

    def blobs(self) -> dict[str, remote.Blob]:
        """Return what lies below the place."""
        url = remote.blob_url(self.place, "", self.token)
        argv = ["list", url, "--properties", "ContentMD5", "--machine-readable"]
        return remote.listing(self._run(argv, self.answer_timeout, f"list {self.place}"))

    def send(self, source: Path, name: str, cap_mbps: int) -> None:
        """Send one file and have its MD5 kept beside it."""
        argv = ["copy", str(source), remote.blob_url(self.place, name, self.token), "--from-to", "LocalBlob"]
        argv += ["--put-md5", "--overwrite", "true", "--cap-mbps", str(cap_mbps)]
        self._copy(argv, f"send {source} to {self.place}/{name}")

    def fetch(self, name: str, into: str) -> None:
        """Fetch a blob and compare what arrives with the MD5 that the service keeps; the null device takes it, too."""
        argv = ["copy", remote.blob_url(self.place, name, self.token), into, "--from-to", "BlobLocal"]
        argv += ["--check-md5", "FailIfDifferentOrMissing", "--overwrite", "true"]
        self._copy(argv, f"fetch {self.place}/{name}")

    def remove(self, name: str) -> None:
        """Remove a blob."""
        argv = ["remove", remote.blob_url(self.place, name, self.token), "--from-to", "BlobTrash"]
        self._copy(argv, f"remove {self.place}/{name}")

    def _copy(self, argv: list[str], what: str) -> None:
        output = self._run(argv, self.copy_timeout, what)
        if not remote.finished(output):
            raise CheckpointError(_failed(what, remote.problem(output)))

    def _run(self, argv: list[str], timeout: float, what: str) -> str:
        # Many run side by side in threads, where _child cannot see to this: none outlives us, not even after SIGKILL.
        wrapper = [setpriv, "--pdeathsig", "KILL"] if (setpriv := shutil.which("setpriv")) else []
        done = _command.run([*wrapper, self.path, *argv, *_COMMON], timeout, environment=self.environment)
        if done.rc == 0:
            return done.out
        if done.rc is None and done.seconds >= timeout:
            raise CheckpointError(
                f"azcopy could not {what} within {timeout:g} s: does {socket.gethostname()} reach the account"
                " (name, route, firewall, proxy, private endpoint)?"
            )
        raise CheckpointError(_failed(what, remote.problem(done.out or done.err)))


def _failed(what: str, said: str) -> str:
    hint = next((f": {text}" for mark, text in _HINTS.items() if mark in said), "")
    return f"azcopy could not {what}: {said}{hint}"
