#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Builds the driver's module as DKMS does when the package is configured, for `kernel`.
set -e
[ "$1" = configure ] || exit 0
if [ -e "$DPKG_ROOT/no-compiler" ]; then echo "Error! Bad return status for module build" >&2; exit 0; fi
mkdir -p "$DPKG_ROOT/lib/modules/${kernel:?}/updates/dkms" "$DPKG_ROOT/var/lib/dkms"
printf 'version=%s\nlicense=%s\n' "${version:?}" "${licence:?}" >"$DPKG_ROOT/lib/modules/${kernel:?}/updates/dkms/nvidia.ko"
echo "nvidia/$version, ${kernel:?}, x86_64: installed" >"$DPKG_ROOT/var/lib/dkms/status"
