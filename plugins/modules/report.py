#!/usr/bin/python
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: report
author: [hpcai.gpu_cluster authors (@hpcai)]
version_added: 0.1.0
short_description: Draw a run record and a certificate as one offline page, and export them
description:
  - Reads C(run.json), which the callback P(hpcai.gpu_cluster.run_record#callback) keeps, and the latest certificate of
    M(hpcai.gpu_cluster.certification) with its records, and writes a page that needs nothing else, neither network nor
    server. The page of a certified fleet has one script, for search, which its own content policy knows by digest.
  - The records are read once, line by line. 4,000 nodes with 60 checks each take seconds and a page of about 1 MB.
  - Everything happens on the machine that Ansible runs on, whichever host the task is for.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode: {support: full, details: [It reads and returns, and writes nothing.]}
  diff_mode: {support: none}
  idempotent: {support: full, details: [A page about the cluster is no state of the cluster. Writing it is no change.]}
options:
  dir:
    description: Directory of C(run.json), where the files are written too.
    type: path
    required: true
  certification:
    description:
      - Directory that holds C(certificate.json) and C(records.jsonl) (or C(records.jsonl.gz)), or directories that do.
      - The latest certificate is drawn. The others are its history.
    type: path
  name:
    description: Name of the files, without their endings.
    type: str
    default: report
  formats:
    description:
      - V(html) is the page, C(.html).
      - V(json_lines) has one check record a line, C(.jsonl).
      - >-
        V(junit) is JUnit XML, C(.xml), a suite per node: a checker's error is an error, what was skipped or is not
        judged is skipped, neither is passed.
      - V(prometheus) is text for a node exporter's text file collector, C(.prom).
    type: list
    elements: str
    choices: [html, json_lines, junit, prometheus]
    default: [html]
  values:
    description: With V(prometheus), a series for each judged metric of each node too, not only for what did not pass.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Draw the report
  hpcai.gpu_cluster.report:
    dir: reports
    certification: reports/certification
    formats: [html, junit]
  delegate_to: localhost
"""

RETURN = r"""
files:
  description: Path of each format.
  type: dict
  returned: success
  sample: {html: reports/report.html}
certificate:
  description: Name of the run whose certificate is drawn, and how many were found from before it; null without one.
  type: dict
  returned: success
  sample: {before: 2, run: 20260105T100000Z}
"""
