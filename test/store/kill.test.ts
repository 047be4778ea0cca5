import { expect, test } from "bun:test";
import { verifyExport } from "../../src/core/verify.ts";
import { exportLog } from "../../src/record/export.ts";
import { openStore } from "../../src/store/open.ts";
import { ephemeralSigningKey } from "../../src/store/signing-key.ts";
import { allLines, stdout, TempDir } from "./samples.ts";

/** Runs the appending child until it has acknowledged so many rounds, then kills it. */
async function killAfter(path: string, rounds: number): Promise<[number, number]> {
  const fixture = `${import.meta.dir}/fixtures/append-loop.ts`;
  const child = Bun.spawn([process.execPath, fixture, path], { stdout: "pipe", stderr: "inherit" });
  let output = "";
  const decoder = new TextDecoder();
  for await (const chunk of child.stdout) {
    output += decoder.decode(chunk, { stream: true });
    if (output.split("\n").length > rounds) child.kill("SIGKILL");
  }
  await child.exited;
  expect(child.signalCode).toBe("SIGKILL");
  const [a, b] = (output.trim().split("\n").at(-1) ?? "").split(" ").map(Number);
  return [a ?? 0, b ?? 0];
}

test("what was acknowledged survives SIGKILL, without a gap, and the chain goes on", async () => {
  using folder = new TempDir();
  const path = folder.join("cprg.db");
  const key = ephemeralSigningKey();
  for (const rounds of [1, 7, 40, 90]) {
    const acknowledged = await killAfter(path, rounds);
    const store = await openStore({ path });
    for (const [index, subject] of (["exec:a", "exec:b"] as const).entries()) {
      const lines = await allLines(store.events, subject);
      expect(lines.length).toBeGreaterThanOrEqual(acknowledged[index] ?? Number.NaN);
      expect(lines.map(({ seq }) => seq)).toEqual(lines.map((_, at) => at + 1));
      // Both calls of one burst are there or neither is.
      if (subject === "exec:a") expect(lines.length % 3).toBe(0);
      const log = exportLog({ store, key, subject });
      const verified = await verifyExport(log, { publicKey: key.publicKey });
      expect(verified).toMatchObject({ ok: true, count: lines.length, complete: false });
    }
    await store.close();
  }
  const store = await openStore({ path });
  await store.events.append("exec:a", [stdout("after")]);
  const log = exportLog({ store, key, subject: "exec:a" });
  expect((await verifyExport(log, { publicKey: key.publicKey })).ok).toBe(true);
  await store.close();
}, 60_000);
