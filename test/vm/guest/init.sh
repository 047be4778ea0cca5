#!/bin/busybox sh
# Process 1 of the initial ramdisk: finds the disks and makes the first one the root. A ramdisk's own
# root cannot be pivoted away from, which every sandbox has to do (pivot_root(2)).
/bin/busybox mkdir -p /proc /dev /new
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk virtio_console; do
  [ -e "/modules/$module.ko" ] && /bin/busybox insmod "/modules/$module.ko"
done
tries=0
while [ ! -b /dev/vdb ] && [ "$tries" -lt 100 ]; do
  /bin/busybox sleep 0.1
  tries=$((tries + 1))
done
/bin/busybox mount -t ext4 /dev/vda /new && /bin/busybox mount -t ext4 -o ro /dev/vdb /new/opt/cprg || {
  echo "vm: no root file system"
  /bin/busybox poweroff -f
}
/bin/busybox umount /proc
exec /bin/busybox switch_root /new /opt/cprg/test/vm/guest/start.sh
