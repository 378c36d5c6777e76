#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Three GPUs that keep what they are told in a file each, by the last digits of their bus id.
cd "$(dirname "$0")" || exit
[ ! -e hangs ] || exec sleep 600
case "$1" in
  -i)
    case "$3" in
      -lgc) echo "${4%,*}" >"graphics-$2" ;;
      -rgc) rm -f "graphics-$2" ;;
    esac
    echo "All done."
    ;;
  *)
    index=0
    for bus in 00000001:00:00.0 0000000A:00:00.0 0000000B:00:00.0; do
      clock=$(cat "graphics-$bus" 2>/dev/null || echo 210)
      echo "$index, GPU-$index, $bus, A100, 550, Enabled, 1410, 1215, $clock, 1215, 1095, 1215, 1095, 1215, 0x1"
      index=$((index + 1))
    done
    ;;
esac
