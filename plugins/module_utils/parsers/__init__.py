# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read what GPU, network and storage test programs print. Public, standard library only, no Ansible needed.

Every parser takes text, an open file or any iterable of lines, and returns frozen dataclasses of finite numbers or
None that ``dataclasses.asdict`` turns into JSON. No text makes one raise: what was cut off comes back as far as it
goes, with ``complete`` false, and a failure carries its first cause, not the consequences that follow it::

    from ansible_collections.hpcai.gpu_cluster.plugins.module_utils.parsers import nccl_tests, text

    with text.opened("nccl.log") as file:
        log = nccl_tests.parse(file)
    for run in log.runs:
        print(run.program, run.ranks, "ranks,", run.peak_busbw, "GB/s at best")
    if not log.ok:
        print("Not to be trusted:", log.cause.text if log.cause else "the output is not complete")

The exit status is not a parser's matter: several of these programs end with 0 when they failed. Hold both against
what you expect.
"""
