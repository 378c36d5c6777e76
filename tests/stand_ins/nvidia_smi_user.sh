#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Two GPUs, and a process on the second.
case "$1" in
  --query-gpu=*) printf '%s\n' 'GPU-aa, 0, A100' 'GPU-bb, 1, A100' ;;
  *) echo 'GPU-bb, 4711, python3' ;;
esac
