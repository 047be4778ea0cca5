// `make demo`: the compiled binary, from start to stop, with what a newcomer wants to see. Ends with
// 1 when anything of it does not hold.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { call, makeHome } from "./e2e/cprg.ts";
import { type Serving, serve } from "./e2e/server.ts";

/** Reads standard input and a file, and prints for two seconds. */
const PROGRAM = `import sys, time
names = [line.strip() for line in sys.stdin]
greeting = open("greeting.txt").read().strip()
for step in range(8):
    print(f"{step + 1}/8  {greeting}, {names[step % len(names)]}!", flush=True)
    time.sleep(0.25)
`;

/** The least time that output must take to arrive, so that it cannot have come all at once. */
const LIVE_MS = 1000;

interface DemoEvent {
  readonly kind: string;
  readonly data: unknown;
}

function title(text: string): void {
  const isColoured = process.stdout.isTTY && !process.env["NO_COLOR"];
  console.log(isColoured ? `\n\x1b[1m${text}\x1b[0m` : `\n${text}`);
}

function check(condition: unknown, what: string): asserts condition {
  if (!condition) throw new Error(`this does not hold: ${what}`);
}

async function main(): Promise<void> {
  using home = makeHome();
  await using server = await serve(home);
  title("A server on this machine, and the layers of its sandboxes");
  console.log(await layers(server));

  title("A Python program, submitted over HTTP; its output as it arrives over the WebSocket");
  const id = await server.submit({
    language: "python",
    code: PROGRAM,
    stdin: "Ada\nGrace\n",
    files: [{ path: "greeting.txt", text: "Hello from the sandbox\n" }],
  });
  await showLive(server, id);

  title("Its result");
  const result = (await (await server.request(`/v1/jobs/${id}/result`)).json()) as {
    status: string;
    exit_code: number;
    stdout: string;
    duration_ms: number;
  };
  const { status, exit_code, duration_ms } = result;
  console.log(`  ${status}, exit code ${exit_code}, ${Math.round(duration_ms)} ms`);
  check(status === "succeeded", "the job succeeded");
  check(
    result.stdout.includes("8/8  Hello from the sandbox, Grace!"),
    "all of the output is there",
  );

  title("Its event log, exported and verified; then with one byte flipped");
  await verifyExport(server, id, join(home.path, "log.ndjson"), home.env);

  title("The server, stopped with SIGTERM");
  const code = await server.stop();
  console.log(`  exit code ${code}`);
  check(code === 0, "the server stops cleanly");

  title(
    "A control plane, a worker that dials out to it, and an agent that drives the worker, offline",
  );
  const agent = await call(["demo"], { env: home.env });
  console.log(agent.out.replace(/^(?=.)/gm, "  ").trimEnd());
  check(agent.code === 0, `the agent does its task: ${agent.err}`);
  check(/^result .*os: Linux/m.test(agent.out), "its result is what its programs found");
}

async function layers(server: Serving): Promise<string> {
  const status = (await (await server.request("/v1/status")).json()) as {
    version: string;
    sandbox: string;
    layers: Record<string, boolean | string>;
    missing: string[];
  };
  const lines = Object.entries(status.layers).map(([name, state]) => {
    const word = state === true ? "on" : state === false ? "off" : state;
    return `  ${name.padEnd(14)} ${word}`;
  });
  const missing = status.missing.length === 0 ? "nothing" : status.missing.join(", ");
  return `  cprg ${status.version} at ${server.url}, mode ${status.sandbox}\n${lines.join("\n")}\n  missing: ${missing}`;
}

async function showLive(server: Serving, id: string): Promise<void> {
  const socket = new WebSocket(`${server.url.replace("http", "ws")}/v1/jobs/${id}/stream`, {
    headers: { Authorization: `Bearer ${server.key}` },
  });
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const begin = performance.now();
  const arrivals: number[] = [];
  socket.onmessage = ({ data }) => {
    const event = JSON.parse(String(data)) as DemoEvent;
    const afterMs = performance.now() - begin;
    if (event.kind === "stdout") {
      arrivals.push(afterMs);
      const lines = String(event.data).trimEnd().split("\n");
      for (const line of lines) console.log(`  ${(afterMs / 1000).toFixed(2)} s  ${line}`);
    }
    if (event.kind === "finished") resolve();
  };
  socket.onclose = () => reject(new Error("the stream was closed before the job had finished"));
  await promise;
  const spread = (arrivals.at(-1) ?? 0) - (arrivals[0] ?? 0);
  check(arrivals.length > 1 && spread > LIVE_MS, "output arrives while the program runs");
}

async function verifyExport(
  server: Serving,
  id: string,
  path: string,
  env: Readonly<Record<string, string>>,
): Promise<void> {
  const client = { env: { ...env, CPRG_SERVER: server.url } };
  check((await call(["replay", id, "--export", path], client)).code === 0, "the log is exported");
  const good = await call(["verify", path], client);
  console.log(`  ${good.out.trim()}`);
  check(good.code === 0, "verify accepts the export");

  const bytes = readFileSync(path);
  const at = bytes.indexOf("Grace");
  check(at > 0, "the export holds the output");
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  writeFileSync(path, bytes);
  const bad = await call(["verify", path], client);
  console.log(`  ${bad.err.trim().replaceAll(path, "log.ndjson")}`);
  check(bad.code === 1, "verify refuses it with one byte flipped");
}

try {
  await main();
  console.log("\ndemo: everything holds");
} catch (error) {
  console.error(`\ndemo: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
