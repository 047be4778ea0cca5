// A notification becomes the violation of the event log.

import { expect, test } from "bun:test";
import { violationName, violationOf } from "../../src/sandbox/seccomp/violation.ts";

test("violationOf() names the call by the machine's table", () => {
  expect(violationOf(101, 0xc000003e)).toEqual({
    type: "seccomp_violation",
    syscall: "ptrace",
    nr: 101,
    arch: "x86_64",
  });
  expect(violationOf(117, 0xc00000b7)).toEqual({
    type: "seccomp_violation",
    syscall: "ptrace",
    nr: 117,
    arch: "aarch64",
  });
});

test("violationOf() leaves the name out where there is none", () => {
  expect(violationOf(1000, 0xc000003e)).toEqual({
    type: "seccomp_violation",
    nr: 1000,
    arch: "x86_64",
  });
  expect(violationOf(26, 0x40000003)).toEqual({
    type: "seccomp_violation",
    nr: 26,
    arch: "0x40000003",
  });
});

test("violationName() knows numbers of the machine that is asked for", () => {
  expect([violationName(321, "x86_64"), violationName(280, "aarch64")]).toEqual(["bpf", "bpf"]);
  expect(violationName(-1, "x86_64")).toBeUndefined();
});
