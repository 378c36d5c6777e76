#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Copies nothing, and fails where FAKE, a directory, has `dies`.
echo "$@" >"$FAKE/sbcast"
[ -e "$FAKE/dies" ] && { echo "sbcast: error: REQUEST_FILE_BCAST(c1)" >&2; exit 1; }
exit 0
