// The operator's settings: extended, never replaced, and never weakened in production.

import { describe, expect, test } from "bun:test";
import { CprgError } from "../../src/core/errors.ts";
import { TRAPS } from "../../src/sandbox/seccomp/base-trap.ts";
import {
  EXTRA_CALLS_MAX,
  parseSeccompPolicy,
  type SeccompSettings,
} from "../../src/sandbox/seccomp/policy.ts";

function parse(settings: Partial<SeccompSettings>) {
  return parseSeccompPolicy({ production: false, ...settings });
}

/** The refusal of settings. */
function refusal(settings: Partial<SeccompSettings>): CprgError {
  try {
    parse(settings);
  } catch (error) {
    if (error instanceof CprgError) return error;
    throw error;
  }
  throw new Error("not refused");
}

describe("parseSeccompPolicy()", () => {
  test.each([undefined, "", "auto", " ON "])("is on for %p", (seccomp) => {
    expect(parse({ seccomp })).toEqual({ isOn: true, allow: [] });
  });

  test("is off when asked, and then keeps the extensions for when it is on again", () => {
    expect(parse({ seccomp: "off", allow: "vmsplice" })).toEqual({
      isOn: false,
      allow: ["vmsplice"],
    });
  });

  test.each(["no", "0", "false", "kill"])("refuses the word %p", (seccomp) => {
    expect(refusal({ seccomp })).toMatchObject({ code: "invalid_argument", field: "CPRG_SECCOMP" });
    expect(refusal({ seccomp }).message).toContain(`"${seccomp}"`);
  });

  test("reads names between commas, sorted and each once", () => {
    expect(parse({ allow: " vmsplice, sync,,vmsplice , socket," }).allow).toEqual([
      "socket",
      "sync",
      "vmsplice",
    ]);
  });

  test.each(["vmslice", "VMSPLICE", "278", "sync\nroot", "x".repeat(5000), "__proto__"])(
    "refuses %p and names it on one short line",
    (name) => {
      const error = refusal({ allow: `sync,${name}` });
      expect(error).toMatchObject({ code: "invalid_argument", field: "CPRG_SECCOMP_ALLOW" });
      expect(error.message).toContain(JSON.stringify(name).slice(0, 30));
      expect(error.message.length).toBeLessThan(150);
      expect(error.message).not.toContain("\n");
    },
  );

  test("reads a bounded number of names", () => {
    expect(parse({ allow: "sync,".repeat(EXTRA_CALLS_MAX) }).allow).toEqual(["sync"]);
    expect(refusal({ allow: "sync,".repeat(EXTRA_CALLS_MAX + 1) }).field).toBe(
      "CPRG_SECCOMP_ALLOW",
    );
  });

  test.each([...Object.keys(TRAPS), "clone", "clone3", "personality", "ioctl", "io_uring_setup"])(
    "allows %s only with the unsafe switch",
    (name) => {
      const error = refusal({ allow: name });
      expect(error.message).toContain(`"${name}"`);
      expect(error.hint).toContain("CPRG_SECCOMP_UNSAFE");
      expect(parse({ allow: name, unsafe: true }).allow).toEqual([name as never]);
      expect(refusal({ allow: name, production: true }).hint).not.toContain("CPRG_SECCOMP_UNSAFE");
    },
  );

  test("takes neither the unsafe switch nor off in production", () => {
    expect(refusal({ unsafe: true, production: true }).field).toBe("CPRG_SECCOMP_UNSAFE");
    expect(refusal({ seccomp: "off", production: true }).field).toBe("CPRG_SECCOMP");
    expect(parse({ allow: "vmsplice", production: true }).allow).toEqual(["vmsplice"]);
  });
});
