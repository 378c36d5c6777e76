#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# What slurmd runs around jobs: it adds its name and the job to the file `log`, and ends with `status`.
echo "$(basename "$0") $SLURM_JOB_ID" >>"${log:?}"
exit "${status:?}"
