# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command line tools of a GPU node, emulated: what they print and how they end, without any GPU.

One module per tool. All of them describe one machine (``machine.py``), so that they agree with each other.
"""
