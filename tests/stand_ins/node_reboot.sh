#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Notes the reboot of a node below NODE_ROOT. With `loads` the driver on disk is loaded, and enabled units start.
echo reboot >>"$NODE_ROOT/reboots"
[ -n "${loads-}" ] || exit 0
modprobe nvidia
for unit in "$NODE_ROOT"/units/*.enabled; do : >"${unit%.enabled}.active"; done
