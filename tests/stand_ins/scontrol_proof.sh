#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# A scontrol that prints files beside it: nodes.json, and later.json from the second time on; partitions.
cd "$(dirname "$0")" || exit
case "$*" in
  --version) echo slurm 24.11.5 ;;
  "show nodes --json") cat nodes.json || exit; [ ! -e later.json ] || mv later.json nodes.json ;;
  "show partition -a -o") cat partitions ;;
  *) echo "slurm_load_node error: Unable to contact slurm controller" >&2; exit 1 ;;
esac
