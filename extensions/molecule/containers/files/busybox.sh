#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# mmdebstrap calls it with the directory into which it has unpacked busybox and base-files: give each of busybox's
# programs its name, and the image a size that no compression takes from it, so that there is something to cut off, to run
# out of space with and to run out of memory with.
set -eu
for name in $(chroot "$1" /bin/busybox --list); do
    [ -e "$1/bin/$name" ] || ln -s busybox "$1/bin/$name"
done
mkdir -p "$1/opt" "$1/tmp"
head -c 48M /dev/urandom > "$1/opt/weights"
