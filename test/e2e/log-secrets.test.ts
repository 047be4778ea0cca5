// What the log of a running server never shows.

import { expect } from "bun:test";
import { requireHost } from "../helpers/host.ts";
import { makeHome } from "./cprg.ts";
import { serve } from "./server.ts";

const { test } = requireHost({ root: true, cgroup: true });

test("the log shows neither keys nor values of jobs' variables, at its most talkative", async () => {
  using home = makeHome();
  const key = `a-key-"${crypto.randomUUID()}`.replace('"', "~");
  const value = `value "${crypto.randomUUID()}"/é`;
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
  await fetch(`${server.url}/v1/jobs/${id}/stream?key=${key}`);
  await server.request(`/v1/jobs/${encodeURIComponent(key)}`);
  expect(await server.stop()).toBe(0);
  const log = await server.err.rest();
  expect(log).toContain('"message":"request"');
  for (const secret of [key, value]) {
    for (const form of [
      secret,
      JSON.stringify(secret).slice(1, -1),
      encodeURIComponent(secret),
      Buffer.from(secret).toString("base64").slice(0, -4),
      Buffer.from(secret).toString("hex"),
    ]) {
      expect(Buffer.from(log).includes(form)).toBe(false);
    }
  }
});
