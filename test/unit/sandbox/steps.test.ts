import { expect, test } from "bun:test";
import { constants } from "node:os";
import { errnoName, stepError } from "../../../src/sandbox/steps.ts";

const CLONE = 3;
const MOUNT = 37;
const FORK = 64;
const ENTRY = 81;

function failed(step: number, errno: number) {
  const { code, hint } = stepError({ step, index: 0, errno }, { op: "start a sandbox" });
  return { code, hint };
}

test("stepError() has the step's own fix for what the kernel forbids", () => {
  const { code, hint } = failed(CLONE, constants.errno.EPERM);
  expect(code).toBe("failed_precondition");
  expect(hint).toContain("max_user_namespaces");
});

test("stepError() says of what a host is short, whichever of the server's steps it fails", () => {
  const { EMFILE, ENFILE, EAGAIN, ENOMEM } = constants.errno;
  for (const step of [CLONE, MOUNT]) {
    expect(failed(step, EMFILE)).toMatchObject({ code: "unavailable" });
    expect(failed(step, EMFILE).hint).toContain("ulimit -n");
    expect(failed(step, ENFILE).hint).toContain("fs.file-max");
    expect(failed(step, EAGAIN).hint).toContain("pid_max");
    expect(failed(step, ENOMEM).hint).toContain("memory");
  }
});

test("stepError() blames no server for the descriptors of what runs inside", () => {
  expect(failed(ENTRY, constants.errno.EMFILE).hint).not.toContain("ulimit -n");
  expect(failed(FORK, constants.errno.EAGAIN).hint).toContain("pid_max");
});

test("errnoName() prefers the usual one of two names", () => {
  expect(errnoName(constants.errno.EWOULDBLOCK)).toBe("EAGAIN");
  expect(errnoName(4095)).toBe("errno 4095");
});
