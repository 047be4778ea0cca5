import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { capabilityMask, capabilityNames } from "../../../src/sandbox/capability-names.ts";
import { reservingSwitches } from "../../../src/sandbox/kernel.ts";
import {
  neededCapabilities,
  SERVER_CAPABILITIES,
  type ServerNeeds,
} from "../../../src/sandbox/server-capabilities.ts";
import { isWithin, parseThreadCapabilities } from "../../../src/sandbox/thread-capabilities.ts";

const least: ServerNeeds = {
  userNamespaces: "free",
  hasClosedGroup: false,
  hasReadSearch: true,
  hasLowPort: false,
};

test.each<[Partial<ServerNeeds>, string]>([
  [{}, "DAC_READ_SEARCH SETGID SETUID"],
  [{ hasClosedGroup: true }, "DAC_OVERRIDE SETGID SETUID"],
  [{ hasReadSearch: false }, "DAC_OVERRIDE SETGID SETUID"],
  [{ hasLowPort: true }, "DAC_READ_SEARCH SETGID SETUID NET_BIND_SERVICE"],
  [{ userNamespaces: "reserved" }, "DAC_READ_SEARCH SETGID SETUID SYS_ADMIN"],
  [{ userNamespaces: "forbidden" }, "CHOWN DAC_OVERRIDE KILL SETGID SETUID SETPCAP SYS_ADMIN"],
])("neededCapabilities(%j)", (needs, expected) => {
  expect(neededCapabilities({ ...least, ...needs }).join(" ")).toBe(expected);
});

test("SERVER_CAPABILITIES has each once", () => {
  const names = SERVER_CAPABILITIES.map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
});

test("a set of capabilities has their names, those that are newer than the list too", () => {
  const mask = capabilityMask(["CHOWN", "SETUID"]);
  expect(mask).toBe(0x81n);
  expect(capabilityNames(mask | (1n << 63n))).toEqual(["CAP_CHOWN", "CAP_SETUID", "CAP_63"]);
  expect(capabilityNames(0n)).toEqual([]);
});

function status(sets: Readonly<Record<string, string>>): string {
  const lines = { CapInh: "0", CapPrm: "c4", CapEff: "c4", CapBnd: "c4", CapAmb: "0", ...sets };
  return Object.entries({ Name: "cprg", ...lines, NoNewPrivs: "1", ...sets })
    .map(([name, value]) => `${name}:\t${value}\n`)
    .join("");
}

test.each<[Readonly<Record<string, string>>, boolean]>([
  [{}, true],
  [{ CapPrm: "4", CapEff: "0" }, true],
  [{ CapPrm: "c5" }, false],
  [{ CapEff: "c5" }, false],
  [{ CapBnd: "1000000000" }, false],
  [{ CapInh: "4" }, false],
  [{ CapAmb: "4" }, false],
  [{ NoNewPrivs: "0" }, false],
])("isWithin() of a thread with %j is %p", (sets, expected) => {
  expect(isWithin(parseThreadCapabilities(status(sets)), 0xc4n)).toBe(expected);
});

test("a status without a set, or with nonsense in one, proves nothing", () => {
  for (const name of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"]) {
    expect(() => parseThreadCapabilities(status({ [name]: "" }))).toThrow(name);
    expect(() => parseThreadCapabilities(status({ [name]: "x" }))).toThrow(name);
  }
});

test("reservingSwitches() are those whose value leaves user namespaces to SYS_ADMIN", () => {
  const directory = mkdtempSync(join(tmpdir(), "cprg-sysctl-"));
  try {
    expect(reservingSwitches(directory)).toEqual([]);
    writeFileSync(join(directory, "unprivileged_userns_clone"), "1\n");
    writeFileSync(join(directory, "apparmor_restrict_unprivileged_userns"), "0\n");
    expect(reservingSwitches(directory)).toEqual([]);
    writeFileSync(join(directory, "unprivileged_userns_clone"), "0\n");
    writeFileSync(join(directory, "apparmor_restrict_unprivileged_userns"), "1\n");
    expect(reservingSwitches(directory)).toEqual([
      "kernel.unprivileged_userns_clone=0",
      "kernel.apparmor_restrict_unprivileged_userns=1",
    ]);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
