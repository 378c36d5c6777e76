#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# CycleCloud's server in the directory `home`: it answers queries with nothing until records were taken in, and notes what it was called with.
echo "$*" >>"${home:?}/calls"
[ -e "$home/taken" ] || exit 0
case "$*" in
  execute*Application.Setting*initial_user*) echo '[{"Value": "admin"}]' ;;
  execute*Application.Setting*distribution*) echo '[{"Value": "hpcai.gpu_cluster"}]' ;;
  execute*Application.Setting*) echo '[{"Value": true}]' ;;
  execute*) echo '[{"Name": "admin"}]' ;;
esac
