#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# States of units from the file `states`, a line each: unit, space, state; others are inactive.
test "$1" = is-active || exit 9
while read -r unit state; do [ "$unit" != "$2" ] || { echo "$state"; exit; }; done <"${states:?}"
echo inactive
