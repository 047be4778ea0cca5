// Which proxy a worker dials through.

import { expect, test } from "bun:test";
import { proxyFor } from "../../../src/cli/worker-proxy.ts";

const PROXY = "http://proxy.example:3128";

function through(host: string, env: Record<string, string>, port = 7600): string | undefined {
  return proxyFor({ host, port }, env)?.href;
}

test("HTTPS_PROXY is the one, in either case, the upper one first", () => {
  expect(through("a.example", {})).toBeUndefined();
  expect(through("a.example", { HTTPS_PROXY: "" })).toBeUndefined();
  expect(through("a.example", { HTTPS_PROXY: PROXY })).toBe(`${PROXY}/`);
  expect(through("a.example", { https_proxy: PROXY })).toBe(`${PROXY}/`);
  expect(through("a.example", { HTTPS_PROXY: PROXY, https_proxy: "http://other" })).toBe(
    `${PROXY}/`,
  );
  expect(through("a.example", { HTTP_PROXY: PROXY, ALL_PROXY: PROXY })).toBeUndefined();
  for (const wrong of ["proxy.example:3128", "socks5://proxy.example", "http://["]) {
    expect(() => through("a.example", { HTTPS_PROXY: wrong })).toThrow("Cannot use HTTPS_PROXY");
  }
});

test("NO_PROXY names hosts, domains above them, ports, or everything", () => {
  const direct = (host: string, noProxy: string, port?: number): boolean =>
    through(host, { HTTPS_PROXY: PROXY, NO_PROXY: noProxy }, port) === undefined;
  for (const names of [
    "*",
    "a.example",
    "b.example, A.Example",
    "example",
    ".example",
    "*.example",
  ]) {
    expect([names, direct("a.example", names)]).toEqual([names, true]);
  }
  for (const names of ["", ",", "b.example", "a.example.org", "xample", "ba.example", "."]) {
    expect([names, direct("a.example", names)]).toEqual([names, false]);
  }
  expect(direct("a.example", "a.example:7600")).toBe(true);
  expect(direct("a.example", "a.example:443")).toBe(false);
  expect(direct("::1", "::1")).toBe(true);
  expect(direct("::1", "[::1]:7600")).toBe(true);
  expect(direct("::1", "[::1]:443")).toBe(false);
  expect(direct("127.0.0.1", "127.0.0.1")).toBe(true);
  expect(through("a.example", { https_proxy: PROXY, no_proxy: "example" })).toBeUndefined();
});
