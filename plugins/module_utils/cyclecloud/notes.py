# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the modules noted of earlier runs on the CycleCloud VM, readable by root alone. Private."""

from __future__ import annotations

import hashlib
import json
import secrets
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils import _managed_file
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.cyclecloud.cli import CliError, Json


class Notes:
    """One JSON file below the state directory."""

    def __init__(self, state_dir: str, name: str) -> None:
        self.path = Path(state_dir) / f"{name}.json"

    def load(self) -> Json:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as exc:
            raise CliError(
                f"Cannot read {self.path}, which tells what was set before: {exc}. Remove it to go on"
            ) from exc
        return found if isinstance(found, dict) else {}

    def save(self, notes: Json) -> None:
        folder(self.path.parent)
        write(self.path, json.dumps(notes, indent=1, sort_keys=True) + "\n")


def folder(path: Path) -> None:
    """Have a directory that only root enters."""
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)


def write(path: Path, text: str, owner: str = "root", mode: int = 0o600) -> None:
    """Put a whole file in place at once, never readable by more people than in the end."""
    _managed_file.replace(path, text.encode(), owner, mode)


def fingerprint(secret: str, salt: str = "") -> str:
    """A salted digest, from which a secret cannot be guessed by a table."""
    salt = salt or secrets.token_hex(16)
    digest = hashlib.pbkdf2_hmac("sha256", secret.encode(), salt.encode(), 200_000).hex()
    return f"{salt}:{digest}"


def same_secret(secret: str, noted: t.Any) -> bool:
    """Whether a secret is the one that was noted by its fingerprint."""
    return isinstance(noted, str) and ":" in noted and fingerprint(secret, noted.partition(":")[0]) == noted
