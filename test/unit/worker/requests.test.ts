// What a claim may name, and what an exec log keeps.

import { expect, test } from "bun:test";
import { CprgError } from "../../../src/core/errors.ts";
import type { ClaimRequest, ExecItem } from "../../../src/gen/messages.ts";
import { parseClaim } from "../../../src/worker/claim-request.ts";
import { ItemLog } from "../../../src/worker/item-log.ts";
import { Tail } from "../../../src/worker/tail.ts";
import { withoutFlag } from "../../../src/worker/token-source.ts";

const request: ClaimRequest = {
  taskId: "t",
  epoch: 1,
  env: {},
  repoUrl: "",
  ref: "",
  claimTtlSeconds: 0,
  limits: {},
};

function fieldOf(rest: Partial<ClaimRequest>): string {
  try {
    parseClaim({ ...request, ...rest });
  } catch (error) {
    if (CprgError.is(error)) return error.field ?? error.code;
    throw error;
  }
  return "taken";
}

test.each([
  "https://github.com/a/b.git",
  "https://host:8443/a/b",
  "ssh://git@host/a/b.git",
  "ssh://host:22/a",
  "git@host:a/b.git",
])("%s is a repository", (repoUrl) => {
  expect(fieldOf({ repoUrl })).toBe("taken");
});

test.each([
  "http://host/a",
  "git://host/a",
  "file:///etc",
  "/etc",
  "../x",
  "ext::sh -c id",
  "https://",
  "https://host",
  "https://host/",
  "https://user:secret@host/a",
  "https://token@host/a",
  "ssh://-oProxyCommand=id/a",
  "ssh://-oProxyCommand=id@host/a",
  "-oProxyCommand=id@host:a",
  "git@-oProxyCommand:a",
  "ssh://host/-a",
  "--upload-pack=id",
  "https://host/a b",
  "https://host/a\nb",
])("%s is none", (repoUrl) => {
  expect(fieldOf({ repoUrl })).toBe("repo_url");
});

test("limits are taken as they are; none of them are the worker's own", () => {
  expect(parseClaim(request).limits).toBeNull();
  expect(parseClaim({ ...request, limits: { mem_mb: 64 } }).limits).toEqual({ mem_mb: 64 });
});

test("refs follow git-check-ref-format(1)", () => {
  const repoUrl = "https://host/a";
  for (const ref of ["main", "feature/x", "v1.0", "0123abcd", "a@b"]) {
    expect([ref, fieldOf({ repoUrl, ref })]).toEqual([ref, "taken"]);
  }
  for (const ref of [
    ...["-x", "--upload-pack=x", "a..b", "a b", "a~1", "a^", "a:b", "a?", "a*", "a[", "a\\b"],
    ...[
      "/a",
      "a/",
      "a//b",
      ".a",
      "a/.b",
      "a.lock",
      "a.lock/b",
      "a@{1}",
      "@",
      "a.",
      "x".repeat(257),
    ],
  ]) {
    expect([ref, fieldOf({ repoUrl, ref })]).toEqual([ref, "ref"]);
  }
  expect(fieldOf({ ref: "main" })).toBe("ref");
});

test("the environment of a claim is bounded", () => {
  const many = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`V${index}`, "x"]));
  expect(fieldOf({ env: many(256) })).toBe("taken");
  expect(fieldOf({ env: many(257) })).toBe("env");
  expect(fieldOf({ env: { A: "x".repeat(65_535) } })).toBe("taken");
  expect(fieldOf({ env: { A: "x".repeat(65_536) } })).toBe("env");
  for (const name of ["", "A=B", "A\0"]) expect(fieldOf({ env: { [name]: "" } })).toBe("env");
  expect(fieldOf({ env: { A: "\0" } })).toBe("env");
  expect(fieldOf({ env: { "a.b-c": "x", "1": "x" } })).toBe("taken");
});

const never = new AbortController().signal;

async function take(log: ItemLog, from: number, count: number): Promise<ExecItem[]> {
  const items: ExecItem[] = [];
  const reader = log.read(from, never);
  while (items.length < count) {
    const { value, done } = await reader.next();
    if (done) break;
    items.push(value);
  }
  return items;
}

test("a log joins what nobody has seen yet, up to one item", async () => {
  const log = new ItemLog();
  for (let index = 0; index < 10; index += 1) await log.output("stdout", Buffer.from("ab"));
  await log.output("stderr", Buffer.from("e"));
  await log.output("stdout", new Uint8Array(100_000));
  const items = await take(log, 1, 4);
  expect(items.map(({ seq }) => seq)).toEqual([1, 2, 3, 4]);
  expect(items[0]?.stdout?.length).toBe(20);
  expect(items[1]?.stderr?.length).toBe(1);
  expect([items[2]?.stdout?.length, items[3]?.stdout?.length]).toEqual([65_536, 34_464]);
});

test("a log that is full holds its writer until something is acknowledged", async () => {
  const log = new ItemLog(1000);
  let isWritten = false;
  const writing = log.output("stdout", new Uint8Array(2000)).then(() => {
    isWritten = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  expect(isWritten).toBe(false);
  log.acknowledge(1);
  await writing;
  expect(log.oldestSeq).toBe(2);
});

test("what was acknowledged cannot be read again, what is kept can", async () => {
  const log = new ItemLog();
  await log.output("stdout", Buffer.from("1"));
  await take(log, 1, 1);
  await log.output("stdout", Buffer.from("2"));
  expect(Buffer.from((await take(log, 1, 1))[0]?.stdout ?? []).toString()).toBe("1");
  log.acknowledge(1);
  await expect(take(log, 1, 1)).rejects.toMatchObject({ code: "data_loss" });
  expect(Buffer.from((await take(log, 2, 1))[0]?.stdout ?? []).toString()).toBe("2");
});

test("a reader that waits is replaced by the next", async () => {
  const log = new ItemLog();
  const first = take(log, 1, 1);
  const second = take(log, 1, 1);
  await expect(first).rejects.toMatchObject({ reason: "REPLACED" });
  await log.output("stdout", Buffer.from("x"));
  expect((await second).length).toBe(1);
});

test("a tail keeps the last bytes", () => {
  const tail = new Tail(10);
  for (let index = 0; index < 10_000; index += 1) tail.add(Buffer.from("0123456789"));
  tail.add(Buffer.from("end"));
  expect(Buffer.from(tail.take()).toString()).toBe("3456789end");
});

test("a flag leaves a command line with its value, in both forms", () => {
  expect(withoutFlag(["cprg", "worker", "--token", "x", "--token-file", "f"], "token")).toEqual([
    ...["cprg", "worker", "--token-file", "f"],
  ]);
  expect(withoutFlag(["worker", "--token=x", "--once"], "token")).toEqual(["worker", "--once"]);
});
