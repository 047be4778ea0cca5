import { expect, test } from "bun:test";
import { jsonLog, LOG_LINE_LENGTH_MAX, LOG_LINES_MAX } from "../../../src/cli/log-json.ts";
import type { ByteSink } from "../../../src/cli/terminal.ts";
import { CprgError } from "../../../src/core/errors.ts";
import { SecretSet } from "../../../src/core/secrets.ts";

const spec = { level: "info", byScope: { http: "debug", store: "error" } } as const;

/** A sink whose writes end when the test says so. */
function heldSink() {
  const lines: string[] = [];
  const held: (() => void)[] = [];
  const sink: ByteSink = {
    isTerminal: false,
    write: (content) => {
      lines.push(String(content));
      return new Promise((resolve) => held.push(resolve));
    },
    drain: async () => undefined,
  };
  const release = async () => {
    for (const resolve of held.splice(0)) resolve();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { sink, lines, release };
}

test("jsonLog() writes one JSON object a line, levels by scope", () => {
  const { sink, lines } = heldSink();
  const log = jsonLog(sink, { spec, now: () => 0 });
  log.scope("jobs").debug("not this");
  log.scope("jobs").info("taken", { job_id: "1", level: "fake", n: 10n });
  log.scope("http").debug("request");
  log.scope("store").warn("nor this");
  expect(lines.map((line) => JSON.parse(line))).toEqual([
    {
      at: "1970-01-01T00:00:00.000Z",
      level: "info",
      scope: "jobs",
      message: "taken",
      job_id: "1",
      n: "10",
    },
    { at: "1970-01-01T00:00:00.000Z", level: "debug", scope: "http", message: "request" },
  ]);
  expect(
    lines.every((line) => line.endsWith("}\n") && line.indexOf("\n") === line.length - 1),
  ).toBe(true);
});

test("jsonLog() spells errors out and survives what has no JSON", () => {
  const { sink, lines } = heldSink();
  const log = jsonLog(sink, { spec, now: () => 0 }).scope("x");
  log.error("failed", {
    error: new CprgError("internal", "m", { reason: "R", cause: new Error("c") }),
  });
  const cycle: Record<string, unknown> = {};
  cycle["self"] = cycle;
  log.error("cycle", cycle);
  log.error("long", { text: "x".repeat(LOG_LINE_LENGTH_MAX) });
  const [failed, cyclic, long] = lines.map((line) => JSON.parse(line));
  expect(failed.error).toMatchObject({
    name: "CprgError",
    code: "internal",
    message: "m",
    reason: "R",
  });
  expect(failed.error.cause).toMatchObject({ name: "Error", message: "c" });
  expect(cyclic).toMatchObject({ message: "cycle", cut: true });
  expect(long).toMatchObject({ message: "long", cut: true });
});

test("jsonLog() keeps a bounded number of lines for a reader that does not read", async () => {
  const { sink, lines, release } = heldSink();
  const log = jsonLog(sink, { spec, now: () => 0 }).scope("x");
  for (let n = 0; n < LOG_LINES_MAX + 5; n += 1) log.info("m");
  expect(lines).toHaveLength(LOG_LINES_MAX);
  await release();
  expect(lines).toHaveLength(LOG_LINES_MAX + 1);
  expect(JSON.parse(lines.at(-1) ?? "")).toMatchObject({ message: "records lost", lost: 5 });
});

test("jsonLog() shows no secret, wherever it stands and whatever encoded it", () => {
  const { sink, lines } = heldSink();
  const secrets = new SecretSet();
  const secret = 'nasty "secret"\nof é';
  secrets.hold([secret]);
  const log = jsonLog(sink, { spec, now: () => 0, secrets }).scope("x");
  const cause = new Error(`cause: ${encodeURIComponent(secret)}`);
  log.error(`message ${secret}`, {
    plain: secret,
    [secret]: { deep: [`\\${secret}`, JSON.stringify({ secret })] },
    base64: Buffer.from(`user:${secret}`).toString("base64"),
    error: new CprgError("internal", `it broke: ${secret}`, { cause }),
    stack: Object.assign(new Error("x"), { stack: `at ${secret}` }),
  });
  log.error(secret, { long: "x".repeat(LOG_LINE_LENGTH_MAX) });
  const loop: Record<string, unknown> = { secret };
  loop["self"] = loop;
  log.error(secret, loop);
  const bytes = Buffer.from(lines.join(""));
  const parts = ["nasty", "of é", "nasty%20", Buffer.from("nasty ").toString("base64")];
  for (const part of parts) expect(bytes.includes(part)).toBe(false);
  expect(lines).toHaveLength(3);
  for (const line of lines) expect(JSON.parse(line).message).toContain("[redacted]");
});
