# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask sacctmgr what is in the accounting database, for the module slurm_accounting. Private."""

from __future__ import annotations

import time
import typing as t
from concurrent import futures

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._command import run
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm import accounting as acct

_PAUSE = 0.5


def read(
    sacctmgr: str, environment: t.Mapping[str, str], wanted: acct.Wanted, timeout: float, forgiving: bool
) -> dict[str, acct.Rows]:
    """Ask everything: the first question waits for slurmdbd, the others then go side by side.

    ``forgiving`` takes no answer for an empty database, as check mode must before the first run.
    """
    queries = acct.queries(wanted)
    end = time.monotonic() + timeout

    def ask(kind: str) -> acct.Rows:
        argv = [sacctmgr, "-nP", "show", *queries[kind]]
        answer = run(argv, timeout, environment=environment)
        while answer.problem and kind == "cluster" and time.monotonic() < end and not forgiving:
            time.sleep(_PAUSE)
            answer = run(argv, timeout, environment=environment)
        if answer.problem and not forgiving:
            raise acct.AccountingError(f"{' '.join(argv)} failed, is slurmdbd running? It said: {answer.problem}")
        return acct.rows("" if answer.problem else answer.out, queries[kind])

    found = {"cluster": ask("cluster")}
    others = [kind for kind in queries if kind not in found]
    with futures.ThreadPoolExecutor() as pool:
        return {**found, **dict(zip(others, pool.map(ask, others)))}
