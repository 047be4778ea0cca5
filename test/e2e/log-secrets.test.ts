// What the log of a running server never shows.

import { expect } from "bun:test";
import { ENV_MAX } from "../../src/core/program-rules.ts";
import { requireHost } from "../helpers/host.ts";
import { makeHome } from "./cprg.ts";
import { serve } from "./server.ts";
import { until } from "./until.ts";

const { test } = requireHost({ root: true, cgroup: true });

test("the log shows neither keys nor values of variables, at its most talkative", async () => {
  using home = makeHome();
  const key = `a-key-"${crypto.randomUUID()}`.replace('"', "~");
  const value = `value "${crypto.randomUUID()}"/é`;
  const [ofSandbox, ofExec] = [crypto.randomUUID(), crypto.randomUUID()];
  const env = { CPRG_API_KEYS: key, CPRG_LOG: "debug" };
  await using server = await serve(home, { env });
  const id = await server.submit({
    argv: ["/bin/sh", "-c", 'echo "$TOKEN"'],
    env: { TOKEN: value },
  });
  const result = await (await server.request(`/v1/jobs/${id}/result`)).json();
  expect(result).toMatchObject({ status: "succeeded", stdout: `${value}\n` });
  // A program that is not there makes the server say why.
  const failed = await server.submit({ argv: [`/nowhere/${value}`], env: { TOKEN: value } });
  await server.request(`/v1/jobs/${failed}/result`);
  const post = async (path: string, body: object) =>
    (await (
      await server.request(path, { method: "POST", body: JSON.stringify(body) })
    ).json()) as Record<string, string>;
  const { sandbox_id: sandbox } = await post("/v1/sandboxes", { env: { TOKEN: ofSandbox } });
  const { exec_id: exec } = await post(`/v1/sandboxes/${sandbox}/execs?wait_seconds=0`, {
    argv: ["cat"],
    stdin_open: true,
    env: { OWN: ofExec },
  });
  for (const name of [ofSandbox, ofExec]) {
    await server.request(`/v1/sandboxes/${sandbox}/files/${encodeURIComponent(name)}`);
    await server.request(`/v1/jobs/${encodeURIComponent(name)}`);
  }
  await server.request(`/v1/execs/${exec}`, { method: "DELETE" });
  await server.request(`/v1/sandboxes/${sandbox}`, { method: "DELETE" });
  // What has ended holds nothing any more: another log line may say the same.
  await server.request(`/v1/jobs/${encodeURIComponent(ofExec)}-after`);
  await fetch(`${server.url}/v1/jobs/${id}/stream?key=${key}`);
  await server.request(`/v1/jobs/${encodeURIComponent(key)}`);
  expect(await server.stop()).toBe(0);
  const log = await server.err.rest();
  expect(log).toContain('"message":"request"');
  expect(log).toContain(`${ofExec}-after`);
  const shown = log.replaceAll(`${ofExec}-after`, "");
  for (const secret of [key, value, ofSandbox, ofExec]) {
    for (const form of [
      secret,
      JSON.stringify(secret).slice(1, -1),
      encodeURIComponent(secret),
      Buffer.from(secret).toString("base64").slice(0, -4),
      Buffer.from(secret).toString("hex"),
    ]) {
      expect(Buffer.from(shown).includes(form)).toBe(false);
    }
  }
});

test("a job with as many variables as there may be leaves the log readable, and hides each of them", async () => {
  using home = makeHome();
  const env = {
    CPRG_API_KEYS: "a:a-key-of-a-0123456789,b:b-key-of-b-0123456789",
    CPRG_LOG: "debug",
  };
  await using server = await serve(home, { env });
  const ask = async (path: string, { key, body }: { key: string; body?: object }) => {
    const response = await fetch(`${server.url}${path}`, {
      headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
      ...(body === undefined ? {} : { method: "POST", body: JSON.stringify(body) }),
    });
    return { status: response.status, json: (await response.json()) as Record<string, string> };
  };
  const [keyA, keyB] = ["a-key-of-a-0123456789", "b-key-of-b-0123456789"];
  const values = Array.from({ length: ENV_MAX }, (_, index) => `a-value-${index}-of-many`);
  const many = Object.fromEntries(values.map((value, index) => [`V${index}`, value]));
  const { json: job } = await ask("/v1/jobs", {
    key: keyA,
    body: { argv: ["sleep", "60"], env: many },
  });
  await until(
    async () =>
      (await ask(`/v1/jobs/${job["job_id"]}`, { key: keyA })).json["status"] === "running" || null,
    { what: "the job runs" },
  );
  expect((await ask("/v1/sandboxes", { key: keyA, body: { env: many } })).status).toBe(201);
  const more = { ...many, V0: "a-value-more-than-may-be" };
  const refused = await ask("/v1/sandboxes", { key: keyA, body: { env: more } });
  expect(refused).toMatchObject({ status: 429, json: { reason: "TENANT_SECRETS" } });
  expect((await ask("/v1/sandboxes", { key: keyB, body: { env: more } })).status).toBe(201);
  for (const value of values.slice(0, 20)) await ask(`/v1/jobs/${value}`, { key: keyB });
  await ask("/v1/jobs/harmless-path", { key: keyB });
  expect(await server.stop()).toBe(0);
  const log = await server.err.rest();
  expect(log).toContain("/v1/jobs/harmless-path");
  expect(log).toContain('"/v1/jobs/[redacted]"');
  for (const value of values) expect(log).not.toContain(value);
});
