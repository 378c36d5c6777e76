#!/bin/sh
# Makes what QEMU boots of a root file system: vmlinuz, initrd and root.raw.
# Arguments: the root directory, the directory for the three, size of the system disk.
set -eu
root=$1
out=$2
size=$3
kernel=$(ls "$root/lib/modules")

# Only what is needed to mount the system disk and to set addresses; udev loads the rest.
initrd=$out/initrd.d
mkdir -p "$initrd/bin" "$initrd/dev" "$initrd/proc" "$initrd/sys" "$initrd/root" "$initrd/modules"
cp "$root/usr/bin/busybox" "$initrd/bin/"
for name in cat cp insmod ip mkdir mount poweroff sh sleep switch_root umount; do
  ln -s busybox "$initrd/bin/$name"
done
number=100
for module in virtio_pci virtio_blk virtio_net; do
  for path in $(chroot "$root" modprobe --set-version "$kernel" --show-depends "$module" | sed -n 's/^insmod //p'); do
    name=$(basename "$path")
    name=${name%.xz}
    # Several need the same one.
    set -- "$initrd/modules"/*-"$name"
    [ ! -e "$1" ] || continue
    number=$((number + 1))
    case $path in
      *.xz) xz --decompress --stdout "$root$path" > "$initrd/modules/$number-$name" ;;
      *) cp "$root$path" "$initrd/modules/$number-$name" ;;
    esac
  done
done
cat > "$initrd/init" <<'END_OF_INIT'
#!/bin/sh
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
# The question whether an accelerator works on this host.
case $(cat /proc/cmdline) in
  *hpcai.probe*)
    echo 'hpcai: this accelerator boots' > /dev/ttyS0
    poweroff -f
    ;;
esac
for module in /modules/*; do
  insmod "$module"
done
ip link set lo up
ip address add 10.0.2.15/24 dev eth0
ip address add "$(cat /seed/address)" dev eth1
# A multicast socket brings back what was sent; IPv6 takes that for another machine with the same address.
echo 1 > /proc/sys/net/ipv6/conf/eth1/disable_ipv6
ip link set eth0 up
ip link set eth1 up
tries=0
until mount -t ext4 -o rw,noatime /dev/vda /root; do
  tries=$((tries + 1))
  [ "$tries" -lt 100 ] || poweroff -f
  sleep 0.1
done
mkdir -p /root/etc/lab
cp /seed/* /root/etc/lab/
if [ -e /seed/route_out ]; then
  ip route add default via "$(cat /seed/route_out)"
  echo 'nameserver 10.0.2.3' > /root/etc/resolv.conf
fi
mount --move /dev /root/dev
umount /proc /sys
exec switch_root /root /sbin/init
END_OF_INIT
chmod 755 "$initrd/init"
(cd "$initrd" && find . | cpio --create --format newc --quiet) > "$out/initrd"
rm -r "$initrd"

cp "$root/boot/vmlinuz-$kernel" "$out/vmlinuz"
# The disk has no room to lose for kernels that never boot from it.
rm -f "$root"/boot/initrd.img-* "$root/boot/System.map-"*
truncate -s "$size" "$out/root.raw"
# Complete: a machine has better things to do than to initialize tables.
mke2fs -q -F -t ext4 -L lab-root -i 65536 -E lazy_itable_init=0,lazy_journal_init=0 -d "$root" "$out/root.raw"
