#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# An ssh whose host is on this machine: `command` runs the last word, as ssh has the user's shell do.
# shellcheck disable=SC2034 # eval reads it
for last; do :; done
eval "exec ${command:?} sh -c \"\$last\""
