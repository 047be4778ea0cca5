/**
 * Where CPython's regression tests differ inside a sandbox, each with the rule that makes it so. A
 * difference that is not here fails, and so does one that is here and is none any more.
 */

import type { ListedDifference } from "./cpython/compare.ts";

/** Most that may be listed. */
export const DIFFERENCES_MAX = 15;

const NO_NETWORK = "seccomp: no socket but AF_UNIX, so an AF_INET one cannot even be made";
const THREE_IDS = "identity: three ids are mapped, so another one is EINVAL before it is EPERM";

export const DIFFERENCES: readonly ListedDifference[] = [
  { what: "test.test_audit.AuditTest.test_socket", reason: NO_NETWORK },
  {
    what: "test.test_resource.ResourceTest.test_prlimit",
    reason: "seccomp: prlimit64 is for the caller itself, so another pid is EPERM and never ESRCH",
  },
  { what: "test.test_signal.WakeupFDTests.test_invalid_socket", reason: NO_NETWORK },
  { what: "test.test_signal.WakeupFDTests.test_set_wakeup_fd_socket_result", reason: NO_NETWORK },
  {
    what: "test.test_spwd.TestSpwdNonRoot.test_getspnam_exception",
    reason: "root: there is no /etc/shadow, so looking there is ENOENT and not EACCES",
  },
  { what: "test.test_subprocess.POSIXProcessTestCase.test_group", reason: THREE_IDS },
  { what: "test.test_subprocess.POSIXProcessTestCase.test_user", reason: THREE_IDS },
  { what: "test.test_support.TestSupport.test_HOST", reason: NO_NETWORK },
  { what: "test.test_support.TestSupport.test_bind_port", reason: NO_NETWORK },
  { what: "test.test_support.TestSupport.test_find_unused_port", reason: NO_NETWORK },
];
