#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# CycleCloud's command line for a server whose password is that of config.ini in the directory `home`.
echo "$*" >>"${home:?}/calls"
grep -q "password = Sesam-0effne" "$home/config.ini" || { echo "Error: Invalid username or password" >&2; exit 1; }
