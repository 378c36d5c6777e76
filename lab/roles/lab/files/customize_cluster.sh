#!/bin/sh
# Makes a machine that could be a part of any cluster one of the lab's: what the roles start is off, and there are users.
# Argument: the root directory.
set -eu
root=$1

# With their packages these would be on.
for unit in munge slurmd slurmctld slurmdbd mariadb; do
  chroot "$root" systemctl --quiet disable "$unit.service"
done
rm -f "$root"/etc/munge/munge.key

# Two ordinary users with the same number on every node: one to be given a Slurm association, one to be refused.
chroot "$root" useradd --create-home --shell /bin/bash --uid 2001 trainer
chroot "$root" useradd --create-home --shell /bin/bash --uid 2002 guest
