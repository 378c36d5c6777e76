#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Answers each call in the same way: it prints `out` and `err` and ends with `status`. Its arguments are added to the file `calls`, its process
# id to the file `pid`; with `hangs` it does not end by itself,
# and with `signal` by that.
[ -z "${calls-}" ] || echo "$*" >>"$calls"
[ -z "${pid-}" ] || echo $$ >>"$pid"
printf '%s' "${out-}"
printf '%s' "${err-}" >&2
[ -z "${hangs-}" ] || exec sleep 600
[ -z "${signal-}" ] || kill "-$signal" $$
exit "${status-0}"
