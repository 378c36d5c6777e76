#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Writes `faults` of the emulated machine to `file` as it starts, then runs `command`.
echo "${faults:?}" >"${file:?}"
exec "${command:?}" "$@"
