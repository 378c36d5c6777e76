# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What CycleCloud answers, and the errors in words. By the reference error answers have no body. Private."""

from __future__ import annotations

import json
import typing as t
import urllib.parse

MEANING = {
    400: "the request is not understood; this CycleCloud may be older than 8.7, or the value is wrong",
    401: "the user name or the password is wrong",
    403: "the user may not do this on this cluster; give the role of an administrator of the cluster",
    404: "there is no such cluster, node or operation",
    406: "CycleCloud does not give JSON here; check the URL",
    409: "something in the request does not fit the cluster, or its request ID was used before",
}


class CycleCloudError(Exception):
    """What was tried, on what, and what came back; the text is fit for the user."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class UnknownOutcome(CycleCloudError):
    """The request may have taken effect or not."""


def read(what: str, method: str, raw: bytes) -> t.Any:
    if not raw.strip():
        return None
    try:
        return json.loads(raw)
    except ValueError:
        if method == "POST":
            raise UnknownOutcome(f"{what} was answered with something else than JSON") from None
        raise CycleCloudError(f"{what} was answered with something else than JSON; check the URL") from None


def refusal(what: str, status: int, location: str) -> CycleCloudError:
    if status >= 500 or status in (408, 429):
        return UnknownOutcome(f"{what}: CycleCloud answered {status}", status)
    if 300 <= status < 400:
        where = urllib.parse.urlsplit(location)
        return CycleCloudError(f"{what} is redirected to {where.scheme}://{where.netloc}; set the URL to that", status)
    return CycleCloudError(f"{what}: CycleCloud answered {status}, so {MEANING.get(status, 'it refuses this')}", status)


def untrusted(what: str, exc: Exception) -> CycleCloudError:
    return CycleCloudError(
        f"{what}: the certificate of the server is not trusted ({getattr(exc, 'verify_message', exc)}). Give the"
        " file with its CA as ca_path, or install a certificate with 'cycle_server keystore import'"
    )
