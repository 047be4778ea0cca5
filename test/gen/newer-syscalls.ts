/**
 * System calls that the kernel headers of current distributions do not know yet, from the kernel's
 * own tables (arch/x86/entry/syscalls/syscall_64.tbl, scripts/syscall.tbl) up to Linux 6.18. Since
 * Linux 5.1 a new call has one number on every machine; those that only x86_64 has stand apart.
 * Where the headers know one of these, the generator checks that they agree.
 */

/** Last number the generated tables hold. Headers may know more; those stay unknown to us. */
export const LAST_NUMBER = 469;

/** Headers older than this lack calls that are not listed here. */
export const OLDEST_HEADERS = "6.1";

/** On both machines. */
export const NEWER_COMMON = {
  cachestat: 451,
  fchmodat2: 452,
  map_shadow_stack: 453,
  futex_wake: 454,
  futex_wait: 455,
  futex_requeue: 456,
  statmount: 457,
  listmount: 458,
  lsm_get_self_attr: 459,
  lsm_set_self_attr: 460,
  lsm_list_modules: 461,
  mseal: 462,
  setxattrat: 463,
  getxattrat: 464,
  listxattrat: 465,
  removexattrat: 466,
  open_tree_attr: 467,
  file_getattr: 468,
  file_setattr: 469,
} as const;

/** On x86_64 alone, in the gap between its own numbers and the common ones. */
export const NEWER_X86_64 = { uretprobe: 335, uprobe: 336 } as const;
