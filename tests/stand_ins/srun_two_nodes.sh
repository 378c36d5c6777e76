#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Starts a command on two nodes one after the other, each with all of standard input; where FAKE has `dies`, a third one fails.
echo "$@" >"$FAKE/srun"
while [ "${1#--}" != "$1" ]; do shift; done
cat >"$FAKE/program"
for node in c1 c2; do SLURMD_NODENAME=$node "$@" <"$FAKE/program"; done
[ -e "$FAKE/dies" ] && { echo "srun: launch" >&2; echo "srun: error: Node failure on c3" >&2; exit 1; }
exit 0
