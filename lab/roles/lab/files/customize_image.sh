#!/bin/sh
# Turns the bare root file system that mmdebstrap made into that of a machine of the lab, whatever kind of machine runs
# it. Argument: the root directory.
# Packages only: nothing secret is inside, all configuration is left to the roles.
set -eu
root=$1

# With an *empty* machine-id systemd makes a new one at boot without "first boot", which would switch on every unit again.
: > "$root/etc/machine-id"
rm -f "$root"/etc/ssh/ssh_host_* "$root/var/lib/dbus/machine-id"
chroot "$root" systemctl --quiet mask \
  getty.target console-getty.service getty@tty1.service \
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer
# Each is a program that systemd runs at every boot and at every daemon-reload to look for what is not here.
mkdir -p "$root/etc/systemd/system-generators"
for name in cryptsetup debug getty gpt-auto hibernate-resume integritysetup rc-local run system-update sysv veritysetup; do
  ln -sfn /dev/null "$root/etc/systemd/system-generators/systemd-$name-generator"
done
# Without sysv's, its scripts do nothing but cost: for a unit that has one, systemctl enable calls
# update-rc.d, which has systemd read all units anew. Emulated, that is four of six seconds of processor time.
rm -f "$root"/etc/init.d/*

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

# Python keeps what it compiles of the modules that Ansible sends, and they are forked from one process, which has imported what
# they all need; the first of them starts it.
files=$(dirname "$0")
cp "$files/lab_bytecode.py" "$files/lab_python.py" "$root/usr/lib/python3/dist-packages/"
echo 'import lab_bytecode' > "$root/usr/lib/python3/dist-packages/lab_bytecode.pth"
mkdir -m 700 "$root/var/cache/lab_bytecode"
mkdir -p "$root/usr/local/sbin"
install -m 755 "$files/lab_python" "$root/usr/local/sbin/"
printf '[Socket]\nListenStream=/run/lab_python\nSocketMode=0600\n[Install]\nWantedBy=sockets.target\n' \
  > "$root/etc/systemd/system/lab_python.socket"
printf '[Service]\nEnvironment=LANG=C.UTF-8\nExecStart=/usr/bin/python3 -m lab_python\nKillMode=process\n' \
  > "$root/etc/systemd/system/lab_python.service"
chroot "$root" systemctl --quiet enable lab_python.socket
