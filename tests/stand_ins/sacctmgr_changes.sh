#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# sacctmgr that changes things: keeps what it was told in order, and ends as failing with what "refused" names.
# The calls of the cluster and of the QOS meet: neither ends before the other has begun.
here=$(dirname "$0")
echo "$*" >> "$here/begun"
await() { while ! grep -q "add $1 " "$here/begun"; do sleep 0.05; done; }
case "$*" in
    *"add cluster "*) await qos ;;
    *"add qos "*) await cluster ;;
esac
case "$*" in
    *"${refused:-nothing is}"*) echo "not allowed" >&2; exit 1 ;;
esac
echo "$*" >> "$here/done"
