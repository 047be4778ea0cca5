import { expect, test } from "bun:test";
import type { ExecGroup } from "../../../src/sandbox/cgroup.ts";
import { ExecGroups } from "../../../src/sandbox/exec-groups.ts";

/** Groups that are made when the test says so. */
function slowGroups() {
  const made: { readonly name: string; finish(): void; fail(error: Error): void }[] = [];
  const sent: string[] = [];
  const groups = new ExecGroups((name) => {
    const { promise, resolve, reject } = Promise.withResolvers<ExecGroup>();
    const group = { name, sent: () => sent.push(name) } as unknown as ExecGroup;
    made.push({ name, finish: () => resolve(group), fail: reject });
    return promise;
  });
  return { groups, made, sent };
}

test("one is made ahead, and each name is used once", async () => {
  const { groups, made } = slowGroups();
  groups.prepare();
  groups.prepare();
  expect(made.map(({ name }) => name)).toEqual(["exec-1"]);
  const first = groups.take();
  const second = groups.take();
  expect(made.map(({ name }) => name)).toEqual(["exec-1", "exec-2"]);
  for (const one of made) one.finish();
  expect(await Promise.all([first, second])).toMatchObject([
    { name: "exec-1" },
    { name: "exec-2" },
  ]);
});

test("its end waits for those that are being made, and closes what nobody took", async () => {
  const { groups, made, sent } = slowGroups();
  groups.prepare();
  const taken = groups.take();
  groups.prepare();
  let isClosed = false;
  const closing = groups.close().then(() => {
    isClosed = true;
  });
  made[1]?.finish();
  await Promise.resolve();
  expect(isClosed).toBe(false);
  made[0]?.finish();
  await closing;
  expect(sent).toEqual(["exec-2"]);
  await taken;
});

test("one that cannot be made ahead fails whoever takes it, and no end", async () => {
  const { groups, made } = slowGroups();
  groups.prepare();
  made[0]?.fail(new Error("ENOSPC"));
  await expect(groups.take()).rejects.toThrow("ENOSPC");
  groups.prepare();
  made[1]?.fail(new Error("ENOSPC"));
  await groups.close();
});
