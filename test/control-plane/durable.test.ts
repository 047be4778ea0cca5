// What outlives a control plane: tasks, tokens, sealed environments; and what is left of secrets.

import { describe, expect, test } from "bun:test";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { ControlPlane } from "../../src/control-plane/control-plane.ts";
import { EnvSeal } from "../../src/control-plane/env-seal.ts";
import { newId } from "../../src/core/ids.ts";
import type { Log } from "../../src/core/log.ts";
import { SecretSet } from "../../src/core/secrets.ts";
import {
  ENV_KEY_FILE,
  ephemeralControlKeys,
  openControlKeys,
  TOKEN_KEY_FILE,
} from "../../src/store/control-keys.ts";
import { openStore } from "../../src/store/open.ts";
import { failure, NOON, sampleTask, TempDir } from "../store/samples.ts";
import { Ground, gate, PATH } from "./ground.ts";

describe("a control plane after another", () => {
  test("queued tasks wait again, once, with their environment; others are interrupted", async () => {
    using folder = new TempDir();
    const at = { dataDirectory: folder.join("data") };
    const storeFactory = () => openStore({ path: folder.join("cprg.db") });
    const runs: string[] = [];
    const first = await ControlPlane.create({ ...at, storeFactory });
    first.setRunner(async () => null);
    const env = { SECRET: "kept-over-the-restart" };
    const queued = await first.submit("queued", { env });
    const { token, view } = await first.mintWorkerToken({ expiresInSeconds: 3600 });
    const gone = await first.mintWorkerToken({ expiresInSeconds: 3600 });
    await first.revokeWorkerToken(gone.view.id);
    await first.stop();

    // As a control plane leaves them that is killed.
    const store = await openStore({ path: folder.join("cprg.db") });
    const [claiming, running] = [sampleTask({ runner: "default" }), sampleTask()];
    for (const { id } of [claiming, running]) {
      await store.tasks.insert(id === running.id ? running : claiming, null);
      await store.tasks.change(id, { type: "claim", at: NOON, workerId: "w" });
    }
    await store.tasks.change(running.id, { type: "run", at: NOON, epoch: 1 });
    await store.close();

    await using ground = await Ground.open({ ...at, storeFactory });
    const { plane } = ground;
    for (const { id } of [claiming, running]) {
      expect(await plane.task(id)).toMatchObject({
        status: "failed",
        reason: "interrupted",
        attempts: 1,
      });
    }
    expect((await plane.task(queued.id)).waiting?.code).toBe("no_runner");
    plane.setRunner(async (input, { lease, task }) => {
      runs.push(task.id);
      const { stdout } = await lease.invoke({
        executable: "sh",
        arguments: ["-c", 'echo "$SECRET"'],
        variables: { PATH },
      });
      return [input, stdout];
    });
    expect(await failure(plane.submit("x", { id: queued.id }))).toMatchObject({
      code: "already_exists",
    });
    await ground.worker({ token });
    expect(await plane.waitTask(queued.id)).toMatchObject({
      result: ["queued", "kept-over-the-restart\n"],
    });
    expect(runs).toEqual([queued.id]);
    const refused = await ground.start({ token: gone.token });
    expect(await refused.ended).toMatchObject({ error: { reason: "TOKEN_REVOKED" } });
    expect((await plane.workerTokens()).map(({ id }) => id)).toEqual([gone.view.id, view.id]);
  });

  test("queued tasks fail where they are not to be recovered", async () => {
    using folder = new TempDir();
    const storeFactory = () => openStore({ path: folder.join("cprg.db") });
    const first = await ControlPlane.create({ storeFactory });
    first.setRunner(async () => null);
    const { id } = await first.submit("queued");
    await first.stop();
    const plane = await ControlPlane.create({ storeFactory, recoverQueued: false });
    plane.setRunner(async () => null);
    expect(await plane.task(id)).toMatchObject({ status: "failed", reason: "interrupted" });
    expect(plane.counts).toEqual({ queued: 0, running: 0 });
    await plane.stop();
  });

  test("without the key an environment is of no use: its task fails, the others run", async () => {
    using folder = new TempDir();
    const storeFactory = () => openStore({ path: folder.join("cprg.db") });
    const first = await ControlPlane.create({ storeFactory });
    first.setRunner(async () => "done");
    const sealed = await first.submit(1, { env: { SECRET: "lost-with-the-key" } });
    const plain = await first.submit(2);
    await first.stop();
    await using ground = await Ground.open({ storeFactory });
    ground.plane.setRunner(async () => "done");
    await ground.worker({ isIdle: true });
    expect(await ground.plane.waitTask(plain.id)).toMatchObject({ status: "succeeded" });
    expect(await ground.plane.waitTask(sealed.id)).toMatchObject({
      status: "failed",
      reason: "claim_failed",
    });
  });

  test("at the same time is refused: one database, one control plane", async () => {
    using folder = new TempDir();
    const storeFactory = () => openStore({ path: folder.join("cprg.db") });
    const first = await ControlPlane.create({ storeFactory });
    const second = await failure(ControlPlane.create({ storeFactory }));
    expect(second).toMatchObject({ code: "failed_precondition", reason: "STORE_LOCKED" });
    const fixture = `${import.meta.dir}/../store/fixtures/open-once.ts`;
    const child = Bun.spawn([process.execPath, fixture, folder.join("cprg.db")], {
      stdout: "pipe",
      stderr: "inherit",
    });
    expect(await new Response(child.stdout).text()).toContain("STORE_LOCKED");
    await first.stop();
    await (await ControlPlane.create({ storeFactory })).stop();
  });
});

describe("keys", () => {
  test("are made once, for their user alone, and kept", async () => {
    using folder = new TempDir();
    const at = folder.join("data");
    const [first, second] = await Promise.all([openControlKeys(at), openControlKeys(at)]);
    const third = await openControlKeys(at);
    for (const keys of [second, third]) {
      expect(keys.env.equals(first.env)).toBe(true);
      expect(keys.token.equals(first.token)).toBe(true);
    }
    for (const name of [TOKEN_KEY_FILE, ENV_KEY_FILE]) {
      expect(statSync(`${at}/${name}`).mode & 0o777).toBe(0o600);
    }
    expect(readdirSync(at).sort()).toEqual([ENV_KEY_FILE, TOKEN_KEY_FILE].sort());
  });

  test("that others may read, or that are none, are refused", async () => {
    using folder = new TempDir();
    const at = folder.join("data");
    await openControlKeys(at);
    const { chmodSync, writeFileSync } = await import("node:fs");
    for (const name of [TOKEN_KEY_FILE, ENV_KEY_FILE]) {
      const path = `${at}/${name}`;
      const good = readFileSync(path);
      chmodSync(path, 0o640);
      expect((await failure(openControlKeys(at))).message).toContain("others may read it");
      chmodSync(path, 0o600);
      for (const bad of ["", "AAAA", "no key"]) {
        writeFileSync(path, bad);
        expect(await failure(openControlKeys(at))).toMatchObject({ code: "failed_precondition" });
      }
      writeFileSync(path, good);
    }
    await openControlKeys(at);
  });
});

describe("a sealed environment", () => {
  const env = { SECRET: "value é\n", OTHER: "" };

  test("opens for its task and with its key alone, and never twice looks the same", () => {
    const seal = new EnvSeal(ephemeralControlKeys().env);
    const sealed = seal.seal("t1", env);
    expect(seal.open("t1", sealed)).toEqual(env);
    expect(seal.seal("t1", env)).not.toEqual(sealed);
    expect(seal.seal("t1", {})).toBeNull();
    expect(seal.open("t1", null)).toEqual({});
    const other = new EnvSeal(ephemeralControlKeys().env);
    const opens = (open: () => unknown) => {
      try {
        return open();
      } catch (error) {
        return (error as { reason?: string }).reason;
      }
    };
    expect(opens(() => other.open("t1", sealed))).toBe("ENV_SEALED");
    expect(opens(() => seal.open("t2", sealed))).toBe("ENV_SEALED");
    const whole = sealed ?? new Uint8Array();
    for (let at = 0; at < whole.length; at += 1) {
      const changed = Uint8Array.from(whole);
      changed[at] = (changed[at] ?? 0) ^ 1;
      expect(opens(() => seal.open("t1", changed))).toBe("ENV_SEALED");
      expect(opens(() => seal.open("t1", whole.slice(0, at)))).toBe("ENV_SEALED");
    }
  });

  test("leaves no form of a value in database, write-ahead log or log, sealed or delivered", async () => {
    using folder = new TempDir();
    const value = `s3cret "${newId()}" é/+?`;
    const said: string[] = [];
    const say = (message: string, fields?: object) =>
      void said.push(message, JSON.stringify(fields), Bun.inspect(fields));
    const log: Log = { debug: say, info: say, warn: say, error: say };
    const path = folder.join("cprg.db");
    const store = await openStore({ path, log });
    const look = async () => {
      const files = readdirSync(folder.join("."), { recursive: true })
        .map((name) => folder.join(String(name)))
        .filter((name) => statSync(name).isFile());
      const bytes = files.map((name) => readFileSync(name).toString("latin1")).join("\n");
      expect(files.some((name) => name.endsWith("-wal"))).toBe(true);
      return [bytes, ...said].join("\n");
    };
    // Every form that the redaction of logs knows: raw, JSON, URL, base64 at each place, hexadecimal.
    const secrets = new SecretSet();
    secrets.hold([value, Buffer.from(value).toString("latin1")]);
    const hasForm = (text: string) => secrets.redact(text) !== text;
    expect(hasForm(`x${JSON.stringify(value)}`)).toBe(true);
    expect(hasForm(Buffer.from(`ab${value}`).toString("base64"))).toBe(true);

    await using ground = await Ground.open({ store, log, dataDirectory: folder.join("data") });
    const { plane } = ground;
    const running = gate();
    plane.setRunner(async (_, { note }) => {
      await note(`the value is ${value}\n`);
      await running.opened;
      throw new Error(`cannot use ${value}`);
    });
    const { id } = await plane.submit(1, { env: { SECRET: value } });
    const cancelled = await plane.submit(2, { env: { SECRET: value }, labels: { none: "1" } });
    expect(await store.tasks.sealedEnv(id)).toBeInstanceOf(Uint8Array);
    expect(hasForm(await look())).toBe(false);
    const sealed = Buffer.from((await store.tasks.sealedEnv(id)) ?? []).toString("latin1");
    expect((await look()).includes(sealed)).toBe(true);
    await ground.worker({ isIdle: true });
    await ground.has(id, "running");
    expect(await store.tasks.sealedEnv(id)).toBeNull();
    await plane.cancelTask(cancelled.id);
    expect(await store.tasks.sealedEnv(cancelled.id)).toBeNull();
    running.open();
    const task = await plane.waitTask(id);
    expect(task.error).toBe("cannot use [redacted]");
    expect(hasForm(await look())).toBe(false);
  });
});
