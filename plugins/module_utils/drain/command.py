# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``hpcai-agent reconcile``: drain what nodes report to be broken, from the controller. Private."""

from __future__ import annotations

import argparse
import json
import sys

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain import reconcile
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.drain.request import DEFAULT_CONFIG, DrainError, load
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.slurm.hostlist import HostlistError, compress, expand

_WHAT = "Drain the nodes whose health checks found a fault. Nothing is ever resumed."


def main(argv: list[str]) -> int:
    """Return 0 after a pass (findings included), 2 if there was none or Slurm did not carry it out."""
    parser = argparse.ArgumentParser(prog="hpcai-agent reconcile", description=_WHAT)
    parser.add_argument("--config", default=DEFAULT_CONFIG, help="default: %(default)s")
    parser.add_argument("--dry-run", action="store_true", help="say what would be drained, and drain nothing")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.add_argument("--release", metavar="HOSTLIST", help="forget what is latched of nodes that were proved")
    options = parser.parse_args(argv)
    try:
        settings = load(options.config)
        if options.release:
            return _release(settings, options.release, options.dry_run)
        outcome = reconcile.perform(settings, options.dry_run)
    except (DrainError, HostlistError) as exc:
        sys.stderr.write(f"hpcai-agent reconcile: nothing was done: {exc}\n")
        return 2
    sys.stdout.write(_json(outcome) if options.json else _lines(outcome, options.dry_run or settings.dry_run))
    if outcome.problem:
        sys.stderr.write(f"hpcai-agent reconcile: {outcome.problem}\n")
    return 2 if outcome.problem else 0


def _release(settings: reconcile.Settings, hostlist: str, dry_run: bool) -> int:
    gone = reconcile.release(settings, expand(hostlist), dry_run)
    word = "would be released" if dry_run else "released"
    sys.stdout.write("".join(f"{word}: {key}\n" for key in gone) or f"nothing is latched of {hostlist}\n")
    return 0


def _lines(outcome: reconcile.Outcome, dry_run: bool) -> str:
    """What the journal keeps: every drain, and each finding once."""
    groups: dict[str, list[str]] = {}
    for name, reason in outcome.drained.items():
        groups.setdefault(reason, []).append(name)
    word = "would drain" if dry_run else "drained"
    lines = [f"{word} {compress(names, sort=True)}: {reason}\n" for reason, names in groups.items()]
    lines += [f"{item['kind']}: {item['nodes']}{': ' if item['nodes'] else ''}{item['text']}\n" for item in outcome.new]
    return "".join(lines)


def _json(outcome: reconcile.Outcome) -> str:
    keep = {key: getattr(outcome, key) for key in ("commands", "drained", "left_alone", "findings", "problem")}
    return json.dumps(keep, sort_keys=True) + "\n"
