# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""perftest: what its messages mean, and which of several is the cause; private."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers.failures import Cause, FirstCause, cause

LIMIT = re.compile(r"BW result is below bw limit|Msg rate\s+is below msg_rate limit")

# Two lines, of which the second has the number that says what happened.
_COMPLETION = re.compile(r"Completion with error at (?:client|server)")
_STATUS = re.compile(r"Failed status (\d{1,3})")
_MEANS = {
    "1": "local length error",
    "4": "local protection error",
    "5": "flushed after an earlier error",
    "9": "remote refused the request",
    "10": "remote refused access to its memory",
    "11": "remote operation error",
    "12": "transport retries exceeded, the other port does not answer",
    "13": "receiver not ready, retries exceeded",
}
_FAILURES = (
    (r"Did not detect devices|No IB devices found|IB device \S+ not found", "config"),
    (r"Port number \d+ state is", "fabric"),
    (r"Couldn't listen to port|Couldn't connect to|Problem in resolving basic address", "infra"),
    (r"Failed to modify QP|Unable to Connect the HCA's through the link", "fabric"),
    (r"Couldn't allocate MR|Couldn't register|failed to create mr|DMA-?BUF .*not supported", "config"),
    (r"Couldn't get context for the device|Couldn't create (?:IB resources|CQ|QP)|Couldn't allocate PD", "software"),
    (r"unrecognized option|Invalid Command|Unsupported memory type|Can't (?:use|enable)", "config"),
    (r"^cu[A-Z]\w+(?:\(\d*\))? (?:returned|error)|Couldn't init GPU context|No such device ID", "software"),
    (r"Failed to load CUDA library|dlerror: ", "software"),
    (r"no available device\(s\) that support CUDA", "config"),
    (r"Data validation (?:failed|error)|Found Incompatibility issue", "fabric"),
)
# The socket broke or a later step could not go on: the reason is on the other side, or stood before.
_CONSEQUENCES = (
    (r"Couldn't read remote address|Couldn't read reports|Couldn't send (?:local address|reports)", "infra"),
    (r"Failed to exchange data between|Unable to (?:init the socket|open file descriptor|read|write)", "infra"),
    (r"Failed to sync between|Failed to close connection|Unable to find the Infiniband/RoCE device", "infra"),
    (r"Failed to complete run_iter|Error occurred while running|Parser function exited with Error", "software"),
    (r"Unable to set up socket connection|Unable to create RDMA_CM resources|Couldn't allocate context", "software"),
)


# Every pattern above holds one of these; most lines of a log are done with after this one search.
_SUSPECT = re.compile(
    r"Couldn't|Unable|Failed|failed|Did not|No IB|not found|Port number|Problem|DMA|recognized|Invalid|Unsupported"
    r"|Can't|^cu[A-Z]|No such|dlerror|no available|validation|Incompat|Error|Parser|Completion"
)


class Failures:
    """The first failure of a test; a consequence only when there is no failure."""

    def __init__(self) -> None:
        self._first = FirstCause()
        self._consequence: Cause | None = None
        self._completion = ""

    def see(self, line: str) -> None:
        if _SUSPECT.search(line):
            self._own(line)
        self._first.see(line)

    def _own(self, line: str) -> None:
        status = _STATUS.search(line)
        if status:
            means = _MEANS.get(status.group(1), "see ibv_wc_status")
            said = f"{self._completion}: {line}" if self._completion else line
            self._first.add(Cause(f"{said[:300]} ({means})", "fabric"))
        elif _COMPLETION.search(line):
            self._completion = self._completion or line
        else:
            failure = _match(line, _FAILURES)
            if failure:
                self._first.add(failure)
            self._consequence = self._consequence or _match(line, _CONSEQUENCES)

    @property
    def cause(self) -> Cause | None:
        if self._first.cause is None and self._completion:
            return Cause(self._completion, "fabric")
        return self._first.cause or self._consequence

    def join(self, other: Failures) -> None:
        """Take the other side's failure where this side knows but consequences."""
        if other._first.cause:
            self._first.add(other._first.cause)
        self._completion = self._completion or other._completion
        self._consequence = self._consequence or other._consequence


def _match(line: str, rules: t.Sequence[tuple[str, str]]) -> Cause | None:
    return next((cause(line, kind) for pattern, kind in rules if re.search(pattern, line)), None)
