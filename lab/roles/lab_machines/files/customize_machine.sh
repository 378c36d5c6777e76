#!/bin/sh
# Makes the root file system of a virtual machine of what customize_image.sh left. Argument: the root directory.
set -eu
root=$1

# Off: what the roles start, and what a machine of the lab has no use for. Under emulation every process at boot counts.
for unit in nfs-server.service nfs-blkmap.service rpcbind.service rpcbind.socket smbd.service nmbd.service \
  samba-ad-dc.service unattended-upgrades.service lvm2-monitor.service blk-availability.service lvm2-lvmpolld.socket \
  nvmefc-boot-connections.service nvmf-autoconnect.service e2scrub_reap.service uuidd.socket systemd-pstore.service; do
  [ ! -e "$root/lib/systemd/system/$unit" ] || chroot "$root" systemctl --quiet disable "$unit"
done
# Masked: what has nothing to do here, and kernel modules and mounts that come by themselves when somebody needs them.
chroot "$root" systemctl --quiet mask \
  serial-getty@ttyS0.service systemd-binfmt.service proc-sys-fs-binfmt_misc.automount systemd-timesyncd.service \
  systemd-network-generator.service systemd-firstboot.service systemd-remount-fs.service systemd-sysusers.service \
  systemd-random-seed.service systemd-update-utmp.service systemd-update-utmp-runlevel.service \
  modprobe@configfs.service modprobe@dm_mod.service modprobe@drm.service modprobe@efi_pstore.service \
  modprobe@fuse.service modprobe@loop.service sys-kernel-config.mount sys-fs-fuse-connections.mount \
  sys-kernel-debug.mount sys-kernel-tracing.mount
# At boot udev hears of disks, adapters and buttons only: consoles and memory blocks are most devices, and need nothing. For
# a processor it would load KVM, and ciphers that are no faster than the kernel's own where the processor is emulated.
mkdir -p "$root/etc/systemd/system/systemd-udev-trigger.service.d"
cat > "$root/etc/systemd/system/systemd-udev-trigger.service.d/lab.conf" <<'END'
[Service]
ExecStart=
ExecStart=-udevadm trigger --type=devices --action=add --prioritized-subsystem=block,net --subsystem-nomatch=bdi \
  --subsystem-nomatch=cpu --subsystem-nomatch=memory --subsystem-nomatch=serio --subsystem-nomatch=tty \
  --subsystem-nomatch=vc --subsystem-nomatch=vtconsole --subsystem-nomatch=workqueue
END
mkdir -p "$root/etc/systemd/journald.conf.d"
printf '[Journal]\nStorage=persistent\nSystemMaxUse=64M\n' > "$root/etc/systemd/journald.conf.d/lab.conf"

# A new connection runs programs that tell a person what is new: half of what it costs.
sed -i /pam_motd/d "$root/etc/pam.d/sshd"

# The initial RAM disk mounts the system disk, sets the addresses and fills /etc/lab (make_boot_files.sh).
ln -sfn lab/hostname "$root/etc/hostname"
: > "$root/etc/resolv.conf"
echo '# The system disk is mounted by the initial RAM disk.' > "$root/etc/fstab"
echo 'HostKey /etc/lab/ssh_host_ed25519_key' > "$root/etc/ssh/sshd_config.d/lab_machine.conf"
# It hears the power button; everything that waits for SSH goes first.
mkdir -p "$root/etc/systemd/system/systemd-logind.service.d"
printf '[Unit]\nAfter=ssh.service\n' > "$root/etc/systemd/system/systemd-logind.service.d/lab.conf"
