/**
 * Where CPython's regression tests differ inside a sandbox, each with the rule that makes it so. A
 * difference that is not here fails, and so does one that is here and is none any more.
 */

import type { ListedDifference } from "./cpython/compare.ts";

/** Most that may be listed. */
export const DIFFERENCES_MAX = 15;

export const DIFFERENCES: readonly ListedDifference[] = [
  {
    what: "test.test_os.FDInheritanceTests.test_openpty",
    reason: "root: /dev has no pseudo-terminals (/dev/ptmx, /dev/pts)",
  },
  {
    what: "test.test_resource.ResourceTest.test_prlimit",
    reason: "seccomp: prlimit64 is for the caller itself, so another pid is EPERM and never ESRCH",
  },
  {
    what: "test.test_spwd.TestSpwdNonRoot.test_getspnam_exception",
    reason: "root: there is no /etc/shadow, so looking there is ENOENT and not EACCES",
  },
];
