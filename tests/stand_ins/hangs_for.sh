#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Runs `command`, but hangs where CUDA_VISIBLE_DEVICES has `device` in it.
case "$CUDA_VISIBLE_DEVICES" in *"${device:?}"*) sleep 600 ;; esac
exec "${command:?}" "$@"
