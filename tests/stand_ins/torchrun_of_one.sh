#!/bin/bash
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The interpreter `python`, but as torchrun it starts one rank, and ends it when it is ended.
if [[ $1 != -m ]]; then exec "${python:?}" "$@"; fi
while [[ $1 != --no-python ]]; do shift; done
shift
RANK=0 "$@" &
rank=$!
trap 'kill -TERM $rank; wait $rank; exit 1' TERM
wait $rank
