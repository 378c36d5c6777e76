#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Adds its verb, and the converge that it was handed, to the file `log`; its test ends with ENDS.
echo "$1 ${HPCAI_FAULTS_CONVERGE:-}" >>log
[ "$1" != test ] || exit "${ENDS:-0}"
