#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The compiler of CUDA 13.0, of the build `build`.
case "$1" in
  --version) echo "Cuda compilation tools, release 13.0, V13.0.${build-88}" ;;
  --list-gpu-code) printf 'sm_80\nsm_90\n' ;;
esac
