#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# A test program that has help, and of a run says only `said`.
case "$1" in -h) echo "USAGE: all_reduce_perf" ;; *) echo "${said-}"; exit 2 ;; esac
