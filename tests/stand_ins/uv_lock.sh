#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# A uv that locks to `lock`, whatever it is asked for.
while [ "$1" != --output-file ]; do shift; done
printf '%s' "${lock:?}" >"$2"
