#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Prints its file of hosts, and the words behind it.
while [ "$1" != --hostfile ]; do shift; done
cat "$2"
shift 2
echo "$@"
