#!/bin/sh
# Makes the root file system of a container of what customize_image.sh left. Argument: the root directory.
set -eu
root=$1

# Masked: units that would fail in a container, and those that in a privileged one would reach into the host's kernel.
chroot "$root" systemctl --quiet mask \
  systemd-modules-load.service systemd-sysctl.service systemd-pstore.service systemd-binfmt.service \
  systemd-random-seed.service systemd-remount-fs.service systemd-firstboot.service systemd-logind.service \
  systemd-udevd.service systemd-udev-trigger.service systemd-udevd-control.socket systemd-udevd-kernel.socket \
  systemd-journald-audit.socket systemd-networkd-wait-online.service kmod-static-nodes.service \
  proc-sys-fs-binfmt_misc.automount dev-hugepages.mount dev-mqueue.mount sys-kernel-config.mount \
  sys-kernel-debug.mount sys-kernel-tracing.mount sys-fs-fuse-connections.mount
mkdir -p "$root/etc/systemd/journald.conf.d"
printf '[Journal]\nReadKMsg=no\nStorage=persistent\nSystemMaxUse=64M\n' > "$root/etc/systemd/journald.conf.d/lab.conf"

mkdir -p "$root/scratch"
chmod 1777 "$root/scratch"
cat > "$root/etc/systemd/system/lab-ssh-keys.service" <<'END_OF_FILE'
[Unit]
Description=Make this node's own SSH host key
ConditionPathExists=!/etc/ssh/ssh_host_ed25519_key
Before=ssh.service

[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key

[Install]
WantedBy=multi-user.target
END_OF_FILE

# Dangling links until a node claims to be a machine type: then /etc/lab holds emulations of the tools that it has.
mkdir -p "$root/usr/local/bin"
for tool in all_gather_perf all_reduce_perf alltoall_perf bandwidthTest broadcast_perf fio gather_perf hypercube_perf \
  ib_read_bw ib_send_bw ib_write_bw ibstat ldd numactl nvbandwidth nvidia-smi reduce_perf reduce_scatter_perf \
  scatter_perf sendrecv_perf taskset xhpl; do
  ln -sfn "/run/lab/bin/$tool" "$root/usr/local/bin/$tool"
done
# The container's environment is all that tells a node how many GPUs to claim; /dev is new at every start.
cat > "$root/etc/systemd/system/lab-gpus.service" <<'END'
[Unit]
Description=Make device nodes that stand in for GPUs
Before=slurmd.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/lab-gpus

[Install]
WantedBy=multi-user.target
END
mkdir -p "$root/usr/local/sbin"
cat > "$root/usr/local/sbin/lab-gpus" <<'END'
#!/bin/sh
set -eu
count=$(tr '\0' '\n' < /proc/1/environ | sed -n 's/^LAB_GPUS=//p')
n=0
while [ "$n" -lt "${count:-0}" ]; do
  [ -e "/dev/nvidia$n" ] || mknod -m 0666 "/dev/nvidia$n" c 195 "$n"
  n=$((n + 1))
done
# A machine without GPUs has only those tools that are on a shared directory.
bin=/etc/lab/bin-login
[ "$n" -eq 0 ] || bin=/etc/lab/bin
mkdir -p /run/lab
ln -sfn "$bin" /run/lab/bin
END
chmod 755 "$root/usr/local/sbin/lab-gpus"
chroot "$root" systemctl --quiet enable lab-ssh-keys.service lab-gpus.service
