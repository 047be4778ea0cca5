// worker.*: claims over a stream, their ttl, and repositories from a git server of our own.

import { afterEach, expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { WORKER_CLAIM, WORKER_DRAIN, WORKER_RELEASE } from "../../src/bridge/methods.ts";
import { CprgError } from "../../src/core/errors.ts";
import type { ClaimRequest } from "../../src/gen/messages.ts";
import { openPlainPlace } from "../../src/worker/open-plain-place.ts";
import { PlainPlace } from "../../src/worker/plain-place.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { CLAIM, type Ground, type GroundOptions, ground, refusal, run, until } from "./ground.ts";

const undo: (() => unknown)[] = [];

afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function worker(options: GroundOptions = {}): Promise<Ground> {
  const there = await ground(options);
  undo.push(() => there[Symbol.asyncDispose]());
  return there;
}

const request = (epoch: number): ClaimRequest => ({
  ...CLAIM,
  epoch,
  env: {},
  repoUrl: "",
  ref: "",
  claimTtlSeconds: 0,
  limits: {},
});

/** Places that open when the test says so. */
function gated(there: () => Ground) {
  const gate = Promise.withResolvers<void>();
  return {
    gate,
    openPlace: async () => {
      await gate.promise;
      const { native, root, home } = there();
      return new PlainPlace({ native, root, home });
    },
  };
}

test("a claim answers where it is, and a second one is refused", async () => {
  const there = await worker();
  const granted = await there.plane.call(WORKER_CLAIM, CLAIM);
  expect(granted).toMatchObject({ root: there.root, home: there.home, os: "linux" });
  expect(["x86_64", "aarch64"]).toContain(granted.arch);
  for (const other of [{ taskId: "t2", epoch: 1 }, CLAIM]) {
    expect(await refusal(there.plane.call(WORKER_CLAIM, other))).toBe(
      "already_exists ALREADY_CLAIMED",
    );
  }
  await there.plane.call(WORKER_RELEASE, { claim: CLAIM });
  expect(await there.plane.call(WORKER_RELEASE, { claim: CLAIM })).toEqual({ killed: 0 });
  await there.claim({ taskId: "t2", epoch: 1 });
});

test("a higher epoch takes the place of the claim, whose programs are gone by then", async () => {
  const there = await worker();
  await there.claim();
  const ran = run(there.plane, { argv: ["sleep", "1000"], execId: "old" });
  const ended = refusal(ran);
  await until(() => there.holder.heldClaims()[0]?.execs.all.length === 1);
  const pid = there.holder.heldClaims()[0]?.execs.all[0]?.pid;
  await there.plane.call(WORKER_CLAIM, { taskId: "t1", epoch: 2 });
  expect(existsSync(`/proc/${pid}`)).toBe(false);
  await ended;
  expect(await refusal(run(there.plane, { command: "true" }))).toBe("aborted STALE_EPOCH");
  const next = { claim: { taskId: "t1", epoch: 2 }, command: "echo new" };
  expect((await run(there.plane, next)).stdout).toBe("new\n");
});

test("a claim that is cancelled while it opens is not held", async () => {
  const box: { ground?: Ground } = {};
  const { gate, openPlace } = gated(() => box.ground as Ground);
  const there = await worker({ openPlace });
  box.ground = there;
  const abort = new AbortController();
  const claiming = refusal(there.plane.call(WORKER_CLAIM, CLAIM, { signal: abort.signal }));
  await until(() => !there.holder.table.isEmpty);
  expect(await refusal(run(there.plane, { command: "true" }))).toBe(
    "failed_precondition NOT_CLAIMED",
  );
  abort.abort();
  expect(await claiming).toBe("canceled");
  gate.resolve();
  await until(() => there.holder.table.isEmpty);
  expect(there.holder.heldClaims()).toEqual([]);
  await there.claim({ taskId: "t2", epoch: 1 });
});

test("a claim that is released while it opens is answered before its release", async () => {
  const opening = Promise.withResolvers<void>();
  const there = await worker({
    openPlace: (_order, signal) => {
      opening.resolve();
      return new Promise((_, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      });
    },
  });
  const answers: string[] = [];
  const claimed = refusal(there.plane.call(WORKER_CLAIM, CLAIM)).then((said) => answers.push(said));
  await opening.promise;
  const released = there.plane
    .call(WORKER_RELEASE, { claim: CLAIM })
    .then(({ killed }) => answers.push(`released ${killed}`));
  await Promise.all([claimed, released]);
  expect(answers).toEqual(["aborted", "released 0"]);
  expect(await refusal(there.plane.call(WORKER_RELEASE, {}))).toBe(
    "failed_precondition NOT_CLAIMED",
  );
});

test("a claim that is given up at the moment of its turn leaves no slot behind", async () => {
  const there = await worker();
  await there.claim();
  const abort = new AbortController();
  const next = refusal(there.holder.claim(request(2), abort.signal));
  // The slot changes hands in the middle of a chain of promises.
  const { table } = there.holder;
  const ended = table.ended.bind(table);
  table.ended = (key) => {
    ended(key);
    abort.abort(new CprgError("canceled", "now"));
  };
  expect(await next).toStartWith("aborted");
  await there.holder.whenEmpty();
  await there.holder.claim(request(3), new AbortController().signal);
  expect(table.held()).toEqual([{ ...CLAIM, epoch: 3 }]);
});

test("a place that does not open leaves the slot free", async () => {
  let isBroken = true;
  const box: { ground?: Ground } = {};
  const there = await worker({
    openPlace: async () => {
      if (isBroken) throw new Error("broken");
      const { native, root, home } = box.ground as Ground;
      return new PlainPlace({ native, root, home });
    },
  });
  box.ground = there;
  expect(await refusal(there.claim())).toBe("internal");
  expect(there.holder.table.isEmpty).toBe(true);
  isBroken = false;
  await there.claim();
});

test("a claim that no heartbeat renews ends with its programs, one that is renewed does not", async () => {
  const there = await worker();
  there.holder.countTtls(true);
  await there.plane.call(WORKER_CLAIM, { ...CLAIM, claimTtlSeconds: 1 });
  const ran = refusal(run(there.plane, { argv: ["sleep", "1000"] }));
  await until(() => there.holder.heldClaims()[0]?.execs.all.length === 1);
  const pid = there.holder.heldClaims()[0]?.execs.all[0]?.pid;
  const startedMs = performance.now();
  while (performance.now() - startedMs < 1500) {
    await there.holder.heard(performance.now(), { renewed: [CLAIM], dropped: [] });
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  expect(there.holder.heldClaims().length).toBe(1);
  await until(() => there.holder.table.isEmpty);
  expect(existsSync(`/proc/${pid}`)).toBe(false);
  await ran;
});

test("without acknowledged heartbeats a ttl ends nothing; a dropped claim ends at once", async () => {
  const there = await worker();
  there.holder.countTtls(false);
  await there.plane.call(WORKER_CLAIM, { ...CLAIM, claimTtlSeconds: 1 });
  await there.holder.heard(0, { renewed: [], dropped: [{ taskId: "t1", epoch: 2 }] });
  expect(there.holder.heldClaims().length).toBe(1);
  await there.holder.heard(0, { renewed: [], dropped: [CLAIM] });
  expect(there.holder.table.isEmpty).toBe(true);
});

test("draining says what is held and takes no other", async () => {
  const there = await worker({ slots: 2 });
  await there.claim();
  expect(await there.plane.call(WORKER_DRAIN, {})).toEqual({ claims: [CLAIM] });
  expect(await refusal(there.claim({ taskId: "t2", epoch: 1 }))).toBe("unavailable DRAINING");
  expect((await run(there.plane, { command: "echo on" })).stdout).toBe("on\n");
});

/** A repository behind https that asks for a password, and what was asked for. */
function gitServer(): { url: string; ca: string; paths: string[]; commit: string } {
  const folder = mkdtempSync(join(tmpdir(), "cprg-git-"));
  undo.push(() => rmSync(folder, { recursive: true, force: true }));
  const git = (...args: string[]): string => {
    const { stdout, status, stderr } = spawnSync("git", ["-C", join(folder, "work"), ...args], {
      encoding: "utf8",
      env: { PATH: "/usr/bin:/bin", HOME: folder, GIT_CONFIG_GLOBAL: "/dev/null" },
    });
    if (status !== 0) throw new Error(stderr);
    return stdout.trim();
  };
  mkdirSync(join(folder, "work"));
  git("init", "-q", "-b", "main");
  git("config", "user.name", "t");
  git("config", "user.email", "t@example.com");
  for (const [index, name] of ["one", "two"].entries()) {
    spawnSync("sh", ["-c", `echo ${name} > ${join(folder, "work", "file")}`]);
    git("add", ".");
    git("commit", "-qm", name);
    if (index === 0) git("tag", "v1");
  }
  const commit = git("rev-parse", "v1");
  git("branch", "side", "v1");
  git("update-server-info");
  const { cert, key } = makeCertificate(folder, "git");
  const paths: string[] = [];
  const allowed = `Basic ${Buffer.from("x-access-token:pass-of-git").toString("base64")}`;
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    tls: { cert: Bun.file(cert), key: Bun.file(key) },
    fetch(asked) {
      paths.push(new URL(asked.url).pathname);
      if (asked.headers.get("authorization") !== allowed) {
        return new Response(null, { status: 401, headers: { "www-authenticate": "Basic" } });
      }
      const path = join(folder, "work/.git", new URL(asked.url).pathname.replace(/^\/r/, ""));
      return existsSync(path) ? new Response(Bun.file(path)) : new Response(null, { status: 404 });
    },
  });
  undo.push(() => server.stop(true));
  return { url: `https://127.0.0.1:${server.port}/r`, ca: cert, paths, commit };
}

function cloning(): Promise<Ground> {
  const box: { ground?: Ground } = {};
  const started = worker({
    openPlace: (order, signal) => {
      const { native, root, home } = box.ground as Ground;
      return openPlainPlace({ native, root, home }, order, signal);
    },
  });
  return started.then((there) => {
    box.ground = there;
    return there;
  });
}

test("a claim's repository is there before its first exec, at its ref, and no password stays", async () => {
  const there = await cloning();
  const { url, ca, commit } = gitServer();
  const env = { GIT_PASSWORD: "pass-of-git", GIT_SSL_CAINFO: ca };
  const claim = async (epoch: number, ref: string): Promise<string> => {
    await there.plane.call(WORKER_CLAIM, { taskId: "t1", epoch, repoUrl: url, ref, env });
    const { stdout } = await run(there.plane, {
      claim: null,
      command: "git status -sb | head -1; git rev-parse HEAD; cat file; cat .git/config",
    });
    expect(stdout).not.toContain("pass-of-git");
    await there.plane.call(WORKER_RELEASE, {});
    rmSync(there.root, { recursive: true });
    return stdout;
  };
  expect(await claim(1, "")).toContain("two");
  expect(await claim(2, "side")).toMatch(/^## side\.\.\.origin\/side\n[0-9a-f]{40}\none/);
  expect(await claim(3, "v1")).toContain(`${commit}\none`);
  expect(await claim(4, commit.slice(0, 10))).toContain(`${commit}\none`);
});

test("a clone that fails holds nothing and leaves nothing", async () => {
  const there = await cloning();
  const { url, ca, paths } = gitServer();
  const claim = (rest: object, env: Record<string, string> = {}) =>
    refusal(
      there.plane.call(WORKER_CLAIM, {
        ...CLAIM,
        repoUrl: url,
        env: { GIT_PASSWORD: "pass-of-git", GIT_SSL_CAINFO: ca, ...env },
        ...rest,
      }),
    );
  const failed = "failed_precondition CLONE_FAILED";
  expect(await claim({ ref: "none" })).toBe(failed);
  expect(await claim({}, { GIT_PASSWORD: "wrong" })).toBe(failed);
  expect(await claim({}, { GIT_PASSWORD: "" })).toBe(failed);
  expect(await claim({}, { GIT_SSL_CAINFO: "/dev/null" })).toBe(failed);
  expect(paths.length).toBeGreaterThan(0);
  expect(readdirSync(there.root)).toEqual([]);
  expect(there.holder.table.isEmpty).toBe(true);
  mkdirSync(join(there.root, "there"));
  expect(await claim({})).toBe(failed);
  expect(readdirSync(there.root)).toEqual(["there"]);
});

test("a clone ends at its bounds of size and time", async () => {
  const there = await worker();
  const { cloneRepository } = await import("../../src/worker/clone.ts");
  const { url, ca } = gitServer();
  const options = {
    url,
    ref: null,
    env: { GIT_PASSWORD: "pass-of-git", GIT_SSL_CAINFO: ca },
    signal: new AbortController().signal,
  };
  const place = new PlainPlace(there);
  expect(await refusal(cloneRepository(place, { ...options, bytesMax: 3 }))).toBe(
    "failed_precondition CLONE_FAILED",
  );
  // Reserved for documentation, so nobody answers there (RFC 5737).
  const silent = { ...options, url: "https://192.0.2.1/r", msMax: 200 };
  expect(await refusal(cloneRepository(place, silent))).toBe("failed_precondition CLONE_FAILED");
  expect(readdirSync(there.root)).toEqual([]);
  await cloneRepository(place, options);
  expect(readFileSync(join(there.root, "file"), "utf8")).toBe("two\n");
  await place.release();
});
