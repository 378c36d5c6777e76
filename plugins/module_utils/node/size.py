# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What machine the cloud says this is: one bundle serves node arrays of several sizes. Private, runs on the node."""

from __future__ import annotations

import http.client
import re
import typing as t
import urllib.error
import urllib.request
from pathlib import Path

# Every VM of Azure has it: cloud-init, sources/azure/identity.py.
AZURE = "7783-7084-3265-9085-8269-3286-77"
URL = "http://169.254.169.254/metadata/instance/compute/vmSize?api-version=2021-02-01&format=text"
_ATTEMPTS, _SECONDS = 3, 2.0
_SIZE = re.compile(r"[A-Za-z0-9_]{1,64}")


def size(root: Path, fetch: t.Callable[[], str] | None = None) -> str:
    """Return the VM size as profiles name it, such as ``ND96asr_v4``; nothing elsewhere, or if Azure is silent."""
    try:
        tag = (root / "sys/class/dmi/id/chassis_asset_tag").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        return ""
    if tag != AZURE:
        return ""
    for dummy in range(_ATTEMPTS):
        try:
            said = (fetch or _fetch)().strip()
        except (OSError, urllib.error.URLError, http.client.HTTPException):
            continue
        return said[len("Standard_") :] if _SIZE.fullmatch(said) and said.startswith("Standard_") else ""
    return ""


def _fetch() -> str:
    """Ask the instance metadata service, which no proxy leads to."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    asked = urllib.request.Request(URL, headers={"Metadata": "true"})
    with opener.open(asked, timeout=_SECONDS) as answer:
        return str(answer.read(256).decode("ascii", "replace"))
