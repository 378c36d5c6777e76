#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The packages of an image below ROOT.
[ "$1" = "--admindir=$ROOT/var/lib/dpkg" ] || exit 2
echo installed munge 0.5.15-2
echo installed slurmd 22.05.8-4+deb12u3
echo config-files slurmctld 22.05.8-4+deb12u3
