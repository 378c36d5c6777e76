#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Prints its usage, and fails where the first directory of libraries has no stub of the driver.
libraries=${LD_LIBRARY_PATH%%:*}
ls "$libraries" >&2
echo nvbandwidth CLI
readlink "$libraries/libcuda.so.1" | grep stubs
