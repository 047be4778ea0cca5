#!/bin/sh
# Process 1 of a virtual machine: mounts what a host has, control groups as the ground wants them,
# and runs the suite. What is wanted is on the kernel's command line, as `ground.NAME`.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t devpts -o ptmxmode=0666 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=755 tmpfs /run
ln -s /proc/self/fd /dev/fd
ln -s /dev/shm /run/shm
hostname vm
busybox ip link set lo up
for word in $(cat /proc/cmdline); do
  case "$word" in
    ground.cgroup=*) cgroup=${word#*=} ;;
    ground.user=*) user=${word#*=} ;;
    ground.files=*) files=${word#*=} ;;
    ground.tests=*) tests=${word#*=} ;;
  esac
done
if [ "$cgroup" = v1 ]; then
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  for controllers in memory cpu,cpuacct pids freezer; do
    mkdir "/sys/fs/cgroup/$controllers"
    mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/$controllers"
  done
  ln -s cpu,cpuacct /sys/fs/cgroup/cpu
  ln -s cpu,cpuacct /sys/fs/cgroup/cpuacct
else
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
cd /opt/cprg
# The host may be busier later on than when the suite measures how slow it is.
bin/bun test/vm/guest/suite.ts --user "$user" --files "$files" --tests "$tests" \
  --report /dev/vport0p1 --slowness 8
sync
busybox poweroff -f
