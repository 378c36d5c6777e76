#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Adds its name and arguments to the file `calls`, and fails where FAILS is among them.
words="$(basename "$0") $*"
echo "$words" >>"${calls:?}"
case "$words" in *"$FAILS"*) exit 1 ;; esac
