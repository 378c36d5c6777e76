#!/bin/sh
# Copyright (c) 2026, the hpcai.gpu_cluster authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# The accounting of a cluster that was just made. The first `failures` questions fail, and each one about `refused`.
for number in $(seq "${failures-0}"); do mkdir "$(dirname "$0")/$number" 2>/dev/null && exit 1; done
[ "$3" != "${refused-}" ] || { echo no such format >&2; exit 1; }
case "$3" in
  cluster) echo lab ;;
  qos) echo "normal|" ;;
  account) echo "root|default|root" ;;
  user) echo "root|root|Administrator" ;;
  association) echo "root|||" ;;
esac
