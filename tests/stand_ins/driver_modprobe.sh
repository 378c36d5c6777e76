#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Loads the driver that a node below NODE_ROOT has on disk for `kernel`.
version=$(modinfo -k "${kernel:?}" --field version "$1")
mkdir -p "$NODE_ROOT/proc/driver/nvidia"
kind="x86_64 Kernel Module "
case "$(modinfo -k "${kernel:?}" --field license nvidia)" in *MIT*) kind="Open Kernel Module for x86_64" ;; esac
echo "NVRM version: NVIDIA UNIX $kind  $version  Release Build  (x@y)" >"$NODE_ROOT/proc/driver/nvidia/version"
