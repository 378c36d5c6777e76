#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# A systemd whose mount works at the start with the number `works`, and has gone after the one with the number `goes`. The units that it is
# told to start are in the file `starts`.
count=$(grep -c . "${starts:?}" 2>/dev/null)
case $1 in
  show) if [ "${count:-0}" -lt "${goes:?}" ]; then echo loaded; else echo not-found; fi ;;
  start) echo "$2" >>"$starts" && [ $((${count:-0} + 1)) -ge "${works:?}" ] ;;
  *) exit 2 ;;
esac
