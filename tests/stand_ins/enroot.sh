#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# An enroot whose registry is FAKE, a directory: `digest`, `squashfs`, and `down` where it cannot be reached. An `older` one knows no
# digests.
echo "$*" >>"$FAKE/calls"
[ -e "$FAKE/down" ] && { echo "[INFO] Querying registry" >&2; echo "curl: (7) Failed to connect to ctl" >&2; exit 7; }
case $1 in
  version) echo 4.1.2 ;;
  digest) [ -z "${older-}" ] || { echo Usage: enroot COMMAND; exit 1; }; cat "$FAKE/digest" ;;
  import) [ -e "$3" ] && exit 9; echo "$ENROOT_SQUASH_OPTIONS" >"$FAKE/options"; cp "$FAKE/squashfs" "$3" ;;
esac
