# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``hpcai-agent certificate``: plan, explain or judge again a certification from its directory. Private.

plan prints what a request would do; explain the tests and partners behind one node's verdict; rejudge the certificate,
made anew from request.json and records.jsonl, with --profile as that profile would have had it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import typing as t
from pathlib import Path

from ansible_collections.hpcai.gpu_cluster.plugins.module_utils._checks import Json
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.campaign import CampaignPlan, replay
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.journal import load
from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.certify.ledger import CampaignError

_MISTAKE = 2


def main(argv: list[str]) -> int:
    """Return 0, 1 if the certificate made anew differs from the one in the directory, 2 if there is nothing to read."""
    options = _parser().parse_args(argv)
    try:
        return int(options.run(options))
    except (ValueError, KeyError, TypeError) as exc:
        sys.stderr.write(f"hpcai-agent certificate {options.what}: {options.directory}: {exc}\n")
        return _MISTAKE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hpcai-agent certificate", description=__doc__)
    kinds = parser.add_subparsers(dest="what", required=True)
    for name, run in (("plan", _plan), ("explain", _explain), ("rejudge", _rejudge)):
        command = kinds.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("directory", type=Path, help="<shared directory>/certification/<run>")
    kinds.choices["explain"].add_argument("node")
    kinds.choices["rejudge"].add_argument("--profile", type=Path, help="JSON file with another profile to judge by")
    return parser


def _request(folder: Path) -> Json:
    request = load(folder / "request.json")
    if not isinstance(request, dict):
        raise CampaignError("request.json is missing: this is not the directory of a run")
    return request


def _replayed(options: argparse.Namespace, profile: Json | None = None) -> tuple[CampaignPlan, dict[str, str]]:
    """Return the campaign of a directory as it ended, and the digests that its certificate carries."""
    request = _request(options.directory)
    try:
        content = (options.directory / "records.jsonl").read_bytes()
    except OSError as exc:
        raise CampaignError(f"records.jsonl: {exc.strerror}; it is written when a run has ended") from exc
    try:
        records = [json.loads(line) for line in content.splitlines()]
    except ValueError as exc:
        raise CampaignError(f"records.jsonl is damaged: {exc}") from exc
    digests = {**(request.get("digests") or {}), "records_sha256": hashlib.sha256(content).hexdigest()}
    return replay(request, records, profile), digests


def _plan(options: argparse.Namespace) -> int:
    request = _request(options.directory)
    _print(CampaignPlan(request["fleet"], request["options"]).plan()["text"])
    return 0


def _explain(options: argparse.Namespace) -> int:
    _print(_replayed(options)[0].explain(options.node))
    return 0


def _rejudge(options: argparse.Namespace) -> int:
    profile = load(options.profile) if options.profile else None
    if options.profile and not isinstance(profile, dict):
        raise CampaignError(f"{options.profile} holds no profile")
    campaign, digests = _replayed(options, profile)
    certificate = json.loads(json.dumps(campaign.certificate(**digests)))
    _print([json.dumps(certificate, indent=1, sort_keys=True)])
    before = load(options.directory / "certificate.json")
    if profile is not None or before in (None, certificate):
        return 0
    differ = sorted(key for key in {**before, **certificate} if before.get(key) != certificate.get(key))
    sys.stderr.write(f"certificate.json says something else in: {', '.join(differ)}\n")
    return 1


def _print(lines: t.Iterable[str]) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
