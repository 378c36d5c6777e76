#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The program of the package that a node below NODE_ROOT has.
program="$NODE_ROOT/usr/bin/nv-fabricmanager"
[ -x "$program" ] && exec "$program" "$@"
exit 127
