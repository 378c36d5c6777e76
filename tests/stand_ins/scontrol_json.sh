#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# A scontrol that prints `nodes`, a file of JSON; `ran` beside it has what it was called with.
echo "$*" >>"$(dirname "$0")/ran"
case "$*" in
  --version) echo slurm 24.11.5 ;;
  *--json) cat "${nodes:?}" ;;
  *) exit 1 ;;
esac
