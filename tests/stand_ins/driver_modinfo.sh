#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The driver's module on the disk of a node below NODE_ROOT.
file="$NODE_ROOT/lib/modules/$2/updates/dkms/nvidia.ko"
[ -f "$file" ] || { echo "modinfo: ERROR: Module nvidia not found." >&2; exit 1; }
case "$3" in
--filename) echo "/lib/modules/$2/updates/dkms/nvidia.ko" ;;
--field) sed -n "s/^$4=//p" "$file" ;;
esac
