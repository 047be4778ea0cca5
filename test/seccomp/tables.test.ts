// The committed tables are those that the generator makes of the installed headers.

import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import {
  archOf,
  isSyscallName,
  syscallName,
  syscallNumber,
} from "../../src/sandbox/seccomp/syscall-table.ts";
import { SYSCALLS_AARCH64 } from "../../src/sandbox/seccomp/syscalls-aarch64.ts";
import { SYSCALLS_X86_64 } from "../../src/sandbox/seccomp/syscalls-x86-64.ts";
import { LAST_NUMBER, OLDEST_HEADERS } from "../gen/newer-syscalls.ts";
import { headersVersion, makeTable, TABLE_SOURCES } from "../gen/syscall-tables.ts";
import { requireHost } from "../helpers/host.ts";

const version = headersVersion() ?? "0";
const hasHeaders = Bun.semver.order(`${version}.0`, `${OLDEST_HEADERS}.0`) >= 0;
const needs = [
  ...(hasHeaders ? [] : [`kernel headers ${OLDEST_HEADERS}`]),
  ...(process.arch === "x64" ? [] : ["x86_64 headers"]),
];
const host = requireHost({ linux: true, programs: needs });

for (const source of TABLE_SOURCES) {
  host.test(`${source.path} is what \`make gen\` makes`, () => {
    expect(makeTable(source)).toBe(readFileSync(source.path, "utf8"));
  });
}

describe("the tables", () => {
  const tables = { x86_64: SYSCALLS_X86_64, aarch64: SYSCALLS_AARCH64 } as const;

  test.each(["x86_64", "aarch64"] as const)("name each number of %s once", (arch) => {
    const numbers = Object.values(tables[arch]);
    expect(new Set(numbers).size).toBe(numbers.length);
    expect(Math.max(...numbers)).toBe(LAST_NUMBER);
    for (const [name, nr] of Object.entries(tables[arch])) {
      expect(isSyscallName(name)).toBe(true);
      expect(syscallNumber(name as never, arch)).toBe(nr);
      expect(syscallName(nr, arch)).toBe(name as never);
    }
  });

  test("know both machines, and calls of one of them alone", () => {
    expect([syscallNumber("ptrace", "x86_64"), syscallNumber("ptrace", "aarch64")]).toEqual([
      101, 117,
    ]);
    expect([syscallNumber("clone", "x86_64"), syscallNumber("clone", "aarch64")]).toEqual([
      56, 220,
    ]);
    expect([syscallNumber("open", "x86_64"), syscallNumber("open", "aarch64")]).toEqual([
      2,
      undefined,
    ]);
    expect([syscallNumber("mseal", "x86_64"), syscallNumber("mseal", "aarch64")]).toEqual([
      462, 462,
    ]);
    expect(syscallName(1023, "x86_64")).toBeUndefined();
  });

  test.each(["constructor", "__proto__", "toString", "", "READ", "read "])(
    "know no call %p",
    (name) => {
      expect(isSyscallName(name)).toBe(false);
      expect(syscallNumber(name as never, "x86_64")).toBeUndefined();
    },
  );

  test("are found by the name of the machine in JavaScript", () => {
    expect([archOf("x64"), archOf("arm64"), archOf("ia32")]).toEqual([
      "x86_64",
      "aarch64",
      undefined,
    ]);
  });
});
