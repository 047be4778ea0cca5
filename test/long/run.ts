// What takes too long for `make test`, each a suite of its own with more rounds. Says what ran, and
// writes it to test/long/latest.json.
//   bun test/long/run.ts [NAME…]

import { writeFileSync } from "node:fs";
import { join } from "node:path";

interface Tier {
  readonly name: string;
  readonly file: string;
  /** How much of it; a variable that is set already wins. */
  readonly env: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
}

const minute = 60_000;

const tiers: readonly Tier[] = [
  {
    name: "crash",
    file: "test/e2e/crash.test.ts",
    env: { CPRG_CRASH_ROUNDS: "50" },
    timeoutMs: 30 * minute,
  },
  {
    name: "fuzz",
    file: "test/http/fuzz.test.ts",
    env: { CPRG_FUZZ_REQUESTS: "2000" },
    timeoutMs: 30 * minute,
  },
  {
    name: "sockets",
    file: "test/e2e/hostile-clients.test.ts",
    env: { CPRG_IDLE_SOCKETS: "5000" },
    timeoutMs: 15 * minute,
  },
  {
    name: "load",
    file: "test/e2e/load.test.ts",
    env: { CPRG_LOAD_JOBS: "10000" },
    timeoutMs: 75 * minute,
  },
  {
    name: "sim",
    file: "test/sim",
    env: { CPRG_SIM_SEEDS: "10000" },
    timeoutMs: 120 * minute,
  },
  {
    name: "slow-reader",
    file: "test/worker/slow-reader.test.ts",
    env: { CPRG_SLOW_READER_MIB: "1024" },
    timeoutMs: 20 * minute,
  },
  {
    name: "tree",
    file: "test/e2e/sandbox-large.test.ts",
    env: { CPRG_TEST_LONG: "1" },
    timeoutMs: 15 * minute,
  },
  {
    name: "chaos",
    file: "test/chaos/chaos.test.ts",
    env: { CPRG_CHAOS_ROUNDS: "7" },
    timeoutMs: 45 * minute,
  },
  {
    name: "kill-store",
    file: "test/control-plane/kill.test.ts",
    env: { CPRG_KILL_ROUNDS: "30" },
    timeoutMs: 15 * minute,
  },
  {
    name: "kill",
    file: "test/e2e/control-plane.test.ts",
    env: { CPRG_KILL_ROUNDS: "30" },
    timeoutMs: 45 * minute,
  },
  {
    name: "workers",
    file: "test/worker/crowd.test.ts",
    env: { CPRG_WORKERS_COUNT: "1000" },
    timeoutMs: 10 * minute,
  },
];

const root = join(import.meta.dir, "../..");
const names = process.argv.slice(2);
const unknown = names.find((name) => !tiers.some((tier) => tier.name === name));
if (unknown !== undefined) throw new Error(`No long tier "${unknown}"`);
const chosen = names.length === 0 ? tiers : tiers.filter(({ name }) => names.includes(name));

const ran: object[] = [];
const failed: string[] = [];
for (const { name, file, env, timeoutMs } of chosen) {
  console.log(`\n== ${name} ==`);
  const given = Object.fromEntries(
    Object.entries(env).map(([variable, value]) => [variable, process.env[variable] ?? value]),
  );
  const startedAt = new Date();
  const child = Bun.spawn([process.execPath, "test", "--timeout", `${timeoutMs}`, `./${file}`], {
    cwd: root,
    env: { ...process.env, ...given, CPRG_TEST_MUST_RUN: "1" },
    stdout: "inherit",
    stderr: "inherit",
    timeout: timeoutMs,
    killSignal: "SIGKILL",
  });
  const exitCode = await child.exited;
  const seconds = Math.round((Date.now() - startedAt.getTime()) / 1000);
  if (exitCode !== 0) failed.push(name);
  ran.push({
    name,
    file,
    env: given,
    at: startedAt.toISOString(),
    seconds,
    passed: exitCode === 0,
  });
}
writeFileSync(join(import.meta.dir, "latest.json"), `${JSON.stringify(ran, null, 2)}\n`);
console.log(
  failed.length === 0 ? `${ran.length} long tiers passed` : `failed: ${failed.join(", ")}`,
);
process.exitCode = failed.length === 0 ? 0 : 1;
