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
  - >-
    Reads C(run.json), which the callback P(hpcai.gpu_cluster.run_record#callback) keeps, and the latest certificate of
    M(hpcai.gpu_cluster.certification) with its check records, and writes one HTML page that needs neither network nor
    server. The page of a certified fleet has one script, for search, which its own content policy admits by digest.
  - >-
    At least one of run record and certificate must be there. A check record that is in both is drawn once. A
    certificate that cannot be read is left out with a warning while there is another one.
  - The records are read once, line by line. 4,000 nodes with 60 checks each take seconds and a page of about 1 MB.
  - Everything happens on the machine that Ansible runs on, whichever host the task is for.
extends_documentation_fragment: [hpcai.gpu_cluster.attributes]
attributes:
  check_mode:
    support: full
    details: It reads the sources and returns the paths, and writes nothing.
  diff_mode:
    support: none
  idempotent:
    support: full
    details: A page about the cluster is not part of its state, so writing it never counts as a change.
options:
  dir:
    description:
      - >-
        Directory of C(run.json), where the files are written too. It is made when missing. A relative path starts at
        the current directory.
    type: path
    required: true
  cluster:
    description:
      - Name of the cluster, where O(dir) holds the records of several. By default the cluster of the last run is drawn.
    type: str
  certification:
    description:
      - >-
        Directory that holds C(certificate.json) with C(records.jsonl) or C(records.jsonl.gz), or directories that do,
        such as O(hpcai.gpu_cluster.certification#module:dir).
      - >-
        The latest certificate of the record's cluster is drawn, and the others are its history. Without this option, or
        where there is none, the page shows the run record alone.
    type: path
  name:
    description:
      - Name of the files without their endings.
    type: str
    default: report
  formats:
    description:
      - V(html) is the page, C(.html).
      - V(json_lines) has one check record a line, C(.jsonl).
      - >-
        V(junit) is JUnit XML, C(.xml), with a suite for each node. A record with verdict V(error) is an error, one with
        V(skipped) or V(unjudged) is skipped; neither counts as passed.
      - V(prometheus) is text for the text file collector of the node exporter, C(.prom).
    type: list
    elements: str
    choices: [html, json_lines, junit, prometheus]
    default: [html]
  values:
    description:
      - >-
        With V(prometheus) in O(formats), write a series for each judged metric of each node too. By default only sums
        and what did not pass have series.
    type: bool
    default: false
seealso:
  - module: hpcai.gpu_cluster.certification
  - plugin: hpcai.gpu_cluster.run_record
    plugin_type: callback
  - plugin: hpcai.gpu_cluster.report_html
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Draw the report of the last run
  hpcai.gpu_cluster.report:
    dir: reports
  delegate_to: localhost
  run_once: true

- name: Draw a certified fleet, and export its records for a CI system
  hpcai.gpu_cluster.report:
    dir: reports
    certification: reports/certification
    formats: [html, junit]
  delegate_to: localhost
  run_once: true

- name: Export every judged value for Prometheus
  hpcai.gpu_cluster.report:
    dir: /var/lib/node_exporter/hpcai
    certification: /srv/reports/certification
    name: fleet
    formats: [prometheus]
    values: true
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
files:
  description:
    - Path of each of O(formats), written or, in check mode, not.
  returned: success
  type: dict
  sample:
    html: reports/report.html
    junit: reports/report.xml
certificate:
  description:
    - The certificate that is drawn, V(null) without one.
  returned: success
  type: dict
  contains:
    run:
      description:
        - Name of its run.
      returned: when a certificate is drawn
      type: str
      sample: 20260105T100000Z
    before:
      description:
        - Number of other certificates that were read, which are its history.
      returned: when a certificate is drawn
      type: int
      sample: 2
"""
