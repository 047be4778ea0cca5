/**
 * The calls whose answer depends on an argument, and those that get an error on purpose. An error
 * is right where ordinary programs try the call and go on without it.
 */

import type { Rules } from "./rule.ts";

/**
 * CLONE_NEW* of <linux/sched.h>. CLONE_NEWTIME (0x80) lies in the exit signal of clone(2), where no
 * signal has a number so high.
 */
const CLONE_NEW_ANY = 0x7e02_0080;

const AF_UNIX = 1;
const PR_SET_SECCOMP = 22;
const TIOCSTI = 0x5412;
const TIOCLINUX = 0x541c;
const TIOCSETD = 0x5423;
/** personality(2) that asks and changes nothing. */
const PERSONALITY_QUERY = 0xffff_ffff;
/** SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF and _EBPF of <asm-generic/socket.h>. */
const SO_ATTACH = [26, 50, 51, 52];
/** Sizes of the rings that libuv asks for: file operations (1.45 to 1.48) and epoll (since 1.45). */
const LIBUV_RINGS = [64, 256];

/** Calls that are checked by an argument. */
export const CHECKED: Rules = {
  clone: {
    check: { arg: 0, test: "anyBit", values: [CLONE_NEW_ANY], answer: "trap" },
    answer: "allow",
    why: "processes and threads, but no namespaces",
  },
  socket: {
    check: { arg: 0, test: "equals", values: [AF_UNIX], answer: "allow" },
    answer: "EAFNOSUPPORT",
    why: "no network of any kind: not AF_INET, AF_NETLINK, AF_VSOCK, AF_PACKET, AF_ALG",
  },
  socketpair: {
    check: { arg: 0, test: "equals", values: [AF_UNIX], answer: "allow" },
    answer: "EAFNOSUPPORT",
    why: "as socket",
  },
  setsockopt: {
    check: { arg: 2, test: "equals", values: SO_ATTACH, answer: "EPERM" },
    answer: "allow",
    why: "AF_UNIX sockets take BPF programs too, and the kernel's memory for those is the host's",
  },
  ioctl: {
    check: { arg: 1, test: "equals", values: [TIOCSTI, TIOCLINUX, TIOCSETD], answer: "EPERM" },
    answer: "allow",
    why: "no typing into a terminal (TIOCSTI, TIOCLINUX), no line disciplines, which load modules",
    isGuarded: true,
  },
  prctl: {
    check: { arg: 0, test: "equals", values: [PR_SET_SECCOMP], answer: "EINVAL" },
    answer: "allow",
    why: "a filter of the program's own takes the host-wide bpf_jit_limit; EINVAL: not configured",
  },
  prlimit64: {
    check: { arg: 0, test: "equals", values: [0], answer: "allow" },
    answer: "EPERM",
    why: "own limits only: RLIMIT_CPU of another process kills it",
    isGuarded: true,
  },
  personality: {
    check: { arg: 0, test: "equals", values: [0, PERSONALITY_QUERY], answer: "allow" },
    answer: "trap",
    why: "asking is harmless; the rest turns off address randomisation and the like",
  },
  io_uring_setup: {
    check: { arg: 0, test: "equals", values: LIBUV_RINGS, answer: "ENOSYS" },
    answer: "trap",
    why: "makes calls that no filter sees; but libuv (Node 25, uvloop, CMake) tries it at every start",
  },
};

/** Calls that get an error on purpose. */
export const REFUSED: Rules = {
  clone3: {
    answer: "ENOSYS",
    why: "its flags are behind a pointer, where no filter can look; C libraries fall back to clone",
    isGuarded: true,
  },
  seccomp: {
    answer: "ENOSYS",
    why: "filters take the host-wide bpf_jit_limit, up to a host that can start no sandbox",
  },

  // EPERM is what a program without capabilities gets from the kernel itself, on any host.
  settimeofday: { answer: "EPERM", why: "the clock is the host's; date and test suites try it" },
  clock_settime: { answer: "EPERM", why: "the clock is the host's; test suites try it" },
  adjtimex: { answer: "EPERM", why: "the clock is the host's, and its state identifies the host" },
  clock_adjtime: { answer: "EPERM", why: "as adjtimex" },
  sethostname: { answer: "EPERM", why: "shells and test suites try it" },
  setdomainname: { answer: "EPERM", why: "as sethostname" },
  chroot: { answer: "EPERM", why: "installers and test suites try it; it needs a capability" },
  syslog: { answer: "EPERM", why: "dmesg tells kernel addresses and the host's devices" },

  io_setup: {
    answer: "ENOSYS",
    why: "its quota, fs.aio-max-nr, is the host's; databases do without",
  },
  sync: { answer: "ENOSYS", why: "writes back the host's file systems; sync(2) cannot fail" },
  syncfs: { answer: "ENOSYS", why: "writes back the file system of a read-only bind: the host's" },
  vmsplice: { answer: "ENOSYS", why: "pins pages; attacked, and everyone can write instead" },
  name_to_handle_at: { answer: "ENOSYS", why: "the other half of open_by_handle_at" },
  fanotify_init: { answer: "ENOSYS", why: "watches whole file systems; inotify is allowed" },
  memfd_secret: { answer: "ENOSYS", why: "memory that the host cannot look into" },
  remap_file_pages: { answer: "ENOSYS", why: "obsolete and attacked; mmap does it" },
  cachestat: { answer: "ENOSYS", why: "tells what others read" },
  mbind: {
    answer: "ENOSYS",
    why: "memory nodes are the host's to place; libnuma then does without",
  },
  set_mempolicy: { answer: "ENOSYS", why: "as mbind" },
  get_mempolicy: { answer: "ENOSYS", why: "as mbind: libnuma asks this one whether to try" },
  move_pages: { answer: "ENOSYS", why: "as mbind; tells where pages of other processes are" },
  migrate_pages: { answer: "ENOSYS", why: "as mbind" },
};
