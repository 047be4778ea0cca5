import { expect, test } from "bun:test";
import type { SandboxLease } from "../../../src/provider/contract.ts";
import { createMountedSandboxProvider } from "../../../src/provider/mounted.ts";
import { createRemoteSandboxProvider } from "../../../src/provider/remote.ts";

const acquire = (): Promise<SandboxLease> => Promise.reject(new Error("not here"));

test("the helpers set the placement, and freeze a plain object that can be spread", async () => {
  const variables = { A: "1" };
  const mounted = createMountedSandboxProvider({ name: "vm", variables, acquire });
  const remote = createRemoteSandboxProvider({ name: "vm", acquire });
  expect(mounted.placement).toBe("mounted");
  expect(remote.placement).toBe("remote");
  expect(Object.isFrozen(mounted)).toBe(true);
  expect(Object.isFrozen(mounted.variables)).toBe(true);
  variables.A = "2";
  expect(mounted.variables).toEqual({ A: "1" });
  expect("variables" in remote).toBe(false);
  const recovering = { ...remote, recover: () => Promise.resolve() };
  expect(recovering).toMatchObject({ name: "vm", placement: "remote", acquire });
});

test("the helpers check the name", () => {
  for (const name of ["a", "vm-2", `a${"b".repeat(62)}`]) {
    expect(createRemoteSandboxProvider({ name, acquire }).name).toBe(name);
  }
  for (const name of ["", "A", "2a", "-a", "a_b", "a b", `a${"b".repeat(63)}`, "a\n", 5 as never]) {
    expect(() => createRemoteSandboxProvider({ name, acquire })).toThrow(/Cannot name/);
  }
  expect(() => createMountedSandboxProvider({ name: "a", acquire: 1 as never })).toThrow(/acquire/);
});
