#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# A systemctl that disables units of an image below ROOT.
echo "$@" >>"$ROOT/calls"
[ "$1 $2" = "--root=$ROOT disable" ] && rm "$ROOT/etc/systemd/system/multi-user.target.wants/$3.service"
