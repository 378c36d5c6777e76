#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Holds two nodes while its command runs. FAKE is a directory: `refuse` in it ends the wait with what it says, `released` tells that it is over.
echo "$@" >"$FAKE/salloc"
[ -e "$FAKE/refuse" ] && { echo "salloc: Pending job allocation 7" >&2; cat "$FAKE/refuse" >&2; exit 1; }
while [ $# -gt 3 ]; do shift; done
trap 'touch "$FAKE/released"; exit 1' TERM
echo "a message of the day"
SLURM_JOB_ID=7 SLURM_JOB_NODELIST="c[1-2]" "$@"
touch "$FAKE/released"
