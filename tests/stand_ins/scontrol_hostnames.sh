#!/bin/bash
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# A scontrol of a job whose nodes are `hosts`; the file `calls` has what it was asked.
# shellcheck disable=SC2086 # one line for each host
[[ $2 != hostnames ]] || printf '%s\n' ${hosts:?}
echo "$@" >>"${calls:?}"
