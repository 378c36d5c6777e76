# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults on demand, and the catalogue of errors with Azure's wording."""

from __future__ import annotations

import json
import re
import time
import typing as t
from pathlib import Path

from .http import ArmError, DropError, Request, Response
from .state import State

CATALOGUE: dict[str, dict[str, t.Any]] = json.loads((Path(__file__).parents[1] / "data/errors.json").read_text())


def _fill(said: t.Any, words: dict[str, t.Any]) -> t.Any:
    if isinstance(said, str):
        return re.sub(r"{(\w+)}", lambda m: str(words.get(m[1], m[0])), said)
    if isinstance(said, dict):
        return {key: _fill(value, words) for key, value in said.items()}
    return [_fill(item, words) for item in said]


def error(code: str, **values: t.Any) -> ArmError:
    """Return an error of the catalogue; ``values`` fill its text and may replace status and message."""
    entry = CATALOGUE.get(code, {"status": 400, "message": "{code} was asked for by a test."})
    words: dict[str, t.Any] = {**entry.get("values", {}), "code": code, **values}
    message = values.get("message") or _fill(entry["message"], words)
    more = {key: _fill(entry[key], words) for key in ("details", "additionalInfo", "target") if key in entry}
    more.update({key: values[key] for key in ("details", "additionalInfo", "target") if key in values})
    return ArmError(int(values.get("status", entry["status"])), entry.get("code", code), message, **more)


def envelope(code: str, **values: t.Any) -> dict[str, t.Any]:
    """Return the same as the ``error`` of a failed operation."""
    body: dict[str, t.Any] = error(code, **values).body()["error"]
    return body


def find(state: State, request: Request) -> dict[str, t.Any] | None:
    """Return what is to go wrong with this request, and count it."""
    for rule in state.faults:
        match = rule.get("match", {})
        if match.get("method", request.method).upper() != request.method:
            continue
        if not re.search(match.get("path", ""), request.path, re.IGNORECASE):
            continue
        rule["seen"] = rule.get("seen", 0) + 1
        first = match.get("nth", 1)
        if first <= rule["seen"] < first + rule.get("times", 1):
            found: dict[str, t.Any] = rule["do"]
            return found
    return None


def before(do: dict[str, t.Any]) -> None:
    """Let it go wrong before the request has an effect. Not to be called with the lock held."""
    time.sleep(float(do.get("hang", 0)))
    if do.get("reset") == "before":
        raise DropError
    if "throttle" in do:
        seconds = str(do["throttle"])
        more = {"Retry-After": seconds, "x-ms-ratelimit-remaining-subscription-writes": "0"}
        message = f"The request was throttled. Please retry after {seconds} seconds."
        raise ArmError(429, "TooManyRequests", message, headers=more)
    if "error" in do and not do.get("later"):
        raise error(do["error"], **{key: value for key, value in do.items() if key not in ("error", "later")})
    if "status" in do and "error" not in do and not do.get("after"):
        raise ArmError(int(do["status"]), "InternalServerError", "An error occurred.")


def after(do: dict[str, t.Any], answer: Response) -> Response:
    """Let it go wrong when the request has had its effect."""
    if do.get("reset") == "after":
        raise DropError
    if "status" in do and do.get("after"):
        raise ArmError(int(do["status"]), "InternalServerError", "An error occurred.")
    return answer
