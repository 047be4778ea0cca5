// A worker whose firewall lets it open one connection, in a network namespace of the test's own.

import { afterEach, expect } from "bun:test";
import { join } from "node:path";
import { cprgPath } from "../e2e/cprg.ts";
import { requireHost } from "../helpers/host.ts";

const FIXTURE = join(import.meta.dir, "../fixtures/confined-worker.ts");
/** Of a network that is nobody's (RFC 5737). */
const [PLANE, WORKER] = ["192.0.2.1", "192.0.2.2"];
const namespaces = [`cprg-plane-${process.pid}`, `cprg-worker-${process.pid}`] as const;

interface Seen {
  readonly stdout: string;
  readonly screen: string;
  readonly isWhole: boolean;
  readonly sockets: readonly string[];
  readonly listening: string;
  readonly opened: number;
  readonly refusedOfWorker: number;
  readonly port: number;
  readonly openBefore: boolean;
  readonly openAfter: boolean;
  readonly second: boolean;
}

function ip(...words: string[]): void {
  const { exitCode, stderr } = Bun.spawnSync(["ip", ...words]);
  if (exitCode !== 0) throw new Error(`ip ${words.join(" ")}: ${stderr.toString()}`);
}

/** Two namespaces that see each other and nothing else. */
function connectTwo(): void {
  const [plane, worker] = namespaces;
  for (const name of namespaces) ip("netns", "add", name);
  ip("-n", plane, "link", "add", "eth0", "type", "veth", "peer", "eth0", "netns", worker);
  for (const [name, address] of [
    [plane, PLANE],
    [worker, WORKER],
  ] as const) {
    ip("-n", name, "address", "add", `${address}/30`, "dev", "eth0");
    ip("-n", name, "link", "set", "eth0", "up");
    ip("-n", name, "link", "set", "lo", "up");
  }
}

async function drive(how: "isolated" | "plain"): Promise<Seen> {
  connectTwo();
  const [plane, worker] = namespaces;
  // Not `ip netns exec`, which hides the control groups that a sandbox needs.
  const child = Bun.spawn(
    [
      ...["nsenter", `--net=/run/netns/${plane}`, process.execPath, FIXTURE],
      ...[PLANE, worker, cprgPath(), how],
    ],
    { stdout: "pipe", stderr: "pipe", timeout: 50_000 },
  );
  const [out, said] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if ((await child.exited) !== 0) throw new Error(said);
  return JSON.parse(out) as Seen;
}

afterEach(() => {
  for (const name of namespaces) Bun.spawnSync(["ip", "netns", "delete", name]);
});

function confined(how: "isolated" | "plain"): () => Promise<void> {
  return async () => {
    const seen = await drive(how);
    expect(seen.stdout).toBe("42\n");
    expect(seen.screen).toContain("30 90");
    expect(seen.screen).toContain("40 100");
    expect(seen.isWhole).toBe(true);
    expect(seen.listening).toBe("");
    expect(seen.sockets.map((line) => line.trim().split(/\s+/).slice(0, 6))).toEqual([
      ["tcp", "ESTAB", "0", "0", expect.stringContaining(`${WORKER}:`), `${PLANE}:${seen.port}`],
    ]);
    // Its one SYN passed, and it tried nothing else.
    expect([seen.opened, seen.refusedOfWorker]).toEqual([1, 0]);
    // The wall stands: what was open is shut, and a second connection beside the worker's is refused.
    expect([seen.openBefore, seen.openAfter, seen.second]).toEqual([true, false, false]);
  };
}

const programs = ["ip", "iptables", "ip6tables", "ss", "nsenter"];

requireHost({ root: true, sandbox: true, programs }).test(
  "with one outbound connection, sandboxes serve exec, terminal and files; nothing listens",
  confined("isolated"),
);

requireHost({ root: true, programs }).test(
  "with one outbound connection, a plain worker serves exec, terminal and files; nothing listens",
  confined("plain"),
);
