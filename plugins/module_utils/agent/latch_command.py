# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hpcai-agent latch: show what is latched in this boot, or clear what a repair without a boot has proven. Private."""

from __future__ import annotations

import argparse
import json
import sys
import time
import typing as t

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._expectation import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent import config, latch, spool
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.agent.host import host

ALL = "all"


def main(argv: t.Sequence[str]) -> int:
    """Show or clear; 1 if what is to be cleared is not latched."""
    parser = argparse.ArgumentParser(prog="hpcai-agent latch")
    parser.add_argument("--config", default=config.PATH)
    parser.add_argument("--clear", metavar="KEY", help=f"a key as shown, or {ALL}")
    asked = parser.parse_args(argv)
    try:
        found = config.load(asked.config)
        if asked.clear:
            return clear(found, asked.clear)
        state, problem = spool.load(found.home, found.node, host(found.proc))
    except (config.ConfigError, OSError) as exc:
        sys.stderr.write(f"hpcai-agent latch: {exc}\n")
        return 1
    if problem:
        sys.stderr.write(f"hpcai-agent latch: {spool.state_path(found.home)}: {problem}\n")
    for key, one in sorted(state["latched"].items()):
        sys.stdout.write(f"{json.dumps({'key': key, 'time': one['time'], 'reason': one['reason']})}\n")
    return 1 if problem else 0


def clear(found: config.Config, key: str) -> int:
    """Forget one latched fault or all of them."""
    with spool.locked(found.home):
        state, dummy = spool.load(found.home, found.node, host(found.proc))
        if key not in (ALL, *state["latched"]):
            sys.stderr.write(f"hpcai-agent latch: {key!r} is not latched\n")
            return 1
        gone = state["latched"] if key == ALL else {key: state["latched"][key]}
        left = {name: one for name, one in state["latched"].items() if name not in gone}
        kept = latch.forgiven(state["kept"], gone, time.time())
        # Else the controller would be told of it until every suite has run again.
        suites = {name: {**one, "records": _without(one["records"], key)} for name, one in state["suites"].items()}
        spool.write(
            spool.state_path(found.home), json.dumps({**state, "latched": left, "suites": suites, "kept": kept})
        )
    return 0


def _without(records: list[Json], key: str) -> list[Json]:
    return [one for one in records if not (one["context"].get("latched") and key in (ALL, latch.key(one)))]
