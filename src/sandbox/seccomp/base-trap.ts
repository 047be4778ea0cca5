/**
 * The calls that no program of a sandbox has a good reason to make, each with what it could reach.
 * Making one is a violation: it is named where the kernel can notify init, and the exec is killed.
 * A call that ordinary programs try and can do without is not here: it gets an error.
 */

import type { SyscallName } from "./syscall-table.ts";

/** The base trap set: why each call is in it. */
export const TRAPS = {
  ptrace: "reads and steers other processes",
  process_vm_readv: "reads other processes' memory",
  process_vm_writev: "writes other processes' memory",
  process_madvise: "acts on other processes' memory",
  pidfd_getfd: "takes descriptors out of other processes",
  kcmp: "compares other processes' kernel objects, which tells kernel addresses apart",

  bpf: "loads programs into the kernel",
  perf_event_open: "a large, often attacked interface that observes the whole machine",
  userfaultfd: "stops the kernel in the middle of a copy: the tool of race exploits",
  io_uring_enter: "makes calls that no filter sees",
  io_uring_register: "makes calls that no filter sees",

  setns: "enters namespaces",
  unshare: "makes namespaces, in which a program has every capability",

  mount: "changes the mount tree",
  umount2: "changes the mount tree",
  pivot_root: "changes the mount tree",
  open_tree: "changes the mount tree",
  open_tree_attr: "changes the mount tree",
  move_mount: "changes the mount tree",
  mount_setattr: "changes the mount tree",
  fsopen: "makes a file system",
  fsconfig: "makes a file system; parses hostile options in the kernel",
  fsmount: "makes a file system",
  fspick: "changes a mounted file system",
  open_by_handle_at: "opens files by number, past the root (shocker)",

  init_module: "loads code into the kernel",
  finit_module: "loads code into the kernel",
  delete_module: "removes code from the kernel",
  kexec_load: "replaces the kernel",
  kexec_file_load: "replaces the kernel",

  add_key: "keyrings are not namespaced by id and were often attacked",
  request_key: "keyrings; starts a helper program outside",
  keyctl: "keyrings are not namespaced by id and were often attacked",

  acct: "writes a record of every process to a file",
  quotactl: "administers the host's file systems",
  quotactl_fd: "administers the host's file systems",
  swapon: "administers the host",
  swapoff: "administers the host",
  reboot: "administers the host; inside a pid namespace it ends process 1",
  lookup_dcookie: "a removed profiling interface: only attacks try it",
  nfsservctl: "a removed interface: only attacks try it",

  iopl: "opens I/O ports",
  ioperm: "opens I/O ports",
  modify_ldt: "makes segments for 16-bit code: attacked, needed by emulators alone",
} as const satisfies Partial<Record<SyscallName, string>>;
