#!/bin/sh
# Turns the bare root file system that mmdebstrap made into that of a machine of the lab, whatever kind of machine runs
# it. Argument: the root directory.
# Packages only: every daemon is off, nothing secret is inside, all configuration is left to the roles.
set -eu
root=$1

# Off: what the roles start. With an *empty* machine-id systemd makes a new one at boot without "first boot",
# which would switch on every unit again.
for unit in munge slurmd slurmctld slurmdbd mariadb; do
  chroot "$root" systemctl --quiet disable "$unit.service"
done
: > "$root/etc/machine-id"
rm -f "$root"/etc/munge/munge.key "$root"/etc/ssh/ssh_host_* "$root/var/lib/dbus/machine-id"
chroot "$root" systemctl --quiet mask \
  getty.target console-getty.service getty@tty1.service \
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer

# /etc/lab comes from the lab's state directory.
mkdir -p "$root/etc/lab" "$root/shared"
ln -sfn lab/hosts "$root/etc/hosts"
mkdir -p "$root/etc/ssh/sshd_config.d"
cat > "$root/etc/ssh/sshd_config.d/lab.conf" <<'END_OF_FILE'
AuthorizedKeysFile /etc/lab/authorized_keys
PasswordAuthentication no
MaxStartups 100
UsePAM yes
END_OF_FILE
chroot "$root" systemctl --quiet enable ssh.service
# Slurm 22.05 looks for PMIx by a name that only the package for developers has.
for library in "$root"/usr/lib/*/pmix2/lib/libpmix.so.2; do
  [ ! -e "$library" ] || ln -sfn libpmix.so.2 "${library%.2}"
done

# Two ordinary users with the same number on every node: one to be given a Slurm association, one to be refused.
chroot "$root" useradd --create-home --shell /bin/bash --uid 2001 trainer
chroot "$root" useradd --create-home --shell /bin/bash --uid 2002 guest
