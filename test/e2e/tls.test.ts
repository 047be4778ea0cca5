// `cprg serve` with TLS, and the client commands that talk to it.

import { expect } from "bun:test";
import { chmodSync, readFileSync } from "node:fs";
import { makeCertificate } from "../helpers/certificate.ts";
import { requireHost } from "../helpers/host.ts";
import { call, makeHome } from "./cprg.ts";
import { serve } from "./server.ts";

const { test } = requireHost({ root: true, cgroup: true, programs: ["openssl"] });

test("clients that are given the certificate talk to the server, others do not", async () => {
  using home = makeHome();
  const { cert, key } = makeCertificate(home.path, "server");
  await using server = await serve(home, { env: { CPRG_TLS_CERT: cert, CPRG_TLS_KEY: key } });
  expect(server.url).toStartWith("https://127.0.0.1:");
  const env = { ...home.env, CPRG_SERVER: server.url, CPRG_CA: cert };
  const run = await call(["run", "--server", server.url, "-c", "print(6*7)"], { env });
  expect([run.code, run.out]).toEqual([0, "42\n"]);
  const untrusting = await call(["jobs"], { env: { ...env, CPRG_CA: "" } });
  expect([untrusting.code, untrusting.err]).toEqual([4, expect.stringContaining("--ca FILE")]);
  const other = makeCertificate(home.path, "other");
  expect((await call(["jobs", "--ca", other.cert], { env })).code).toBe(4);
  const listed = await call(["jobs", "--ca", cert], { env });
  expect([listed.code, listed.out]).toEqual([0, expect.stringContaining("succeeded")]);
  const plain = await fetch(server.url.replace("https", "http")).catch(() => null);
  expect(plain?.ok ?? false).toBe(false);
  expect(await server.stop()).toBe(0);
  expect(await server.err.rest()).not.toContain(readFileSync(key, "utf8").split("\n")[1] ?? "-");
});

test("neither a start nor --check passes with a key that others can read", async () => {
  using home = makeHome();
  const { cert, key } = makeCertificate(home.path, "server");
  chmodSync(key, 0o644);
  const env = { ...home.env, CPRG_TLS_CERT: cert, CPRG_TLS_KEY: key };
  for (const words of [["serve"], ["serve", "--check"]]) {
    const { code, err } = await call(words, { env });
    expect([code, err]).toEqual([2, expect.stringContaining("others may read")]);
  }
  chmodSync(key, 0o600);
  expect((await call(["serve", "--check"], { env })).code).toBe(0);
});

test("a request for a name that the server does not have is misdirected", async () => {
  using home = makeHome();
  await using server = await serve(home, { words: ["--allowed-hosts", "cprg.example.org"] });
  const ask = async (host: string) =>
    (await fetch(`${server.url}/healthz`, { headers: { Host: host } })).status;
  expect(await ask("evil.example")).toBe(421);
  expect(await ask("cprg.example.org")).toBe(200);
  expect(await server.stop()).toBe(0);
});
