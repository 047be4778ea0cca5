// SIGKILL of a control plane under load: what it accepted is there, and nothing is done twice.

import { afterEach, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ControlPlane } from "../../src/control-plane/control-plane.ts";
import { openStore } from "../../src/store/open.ts";
import { allLines, TempDir } from "../store/samples.ts";
import { gate, startWorkerHere, TOKEN, until, type WorkerHere } from "./ground.ts";

const FIXTURE = join(import.meta.dir, "../fixtures/killed-control-plane.ts");
const ROUNDS = Number(process.env["CPRG_KILL_ROUNDS"] ?? 3);
const ROUND_MS_MAX = 20_000;

const undo: (() => unknown)[] = [];

afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

interface Started {
  readonly port: number;
  /** Ids that were accepted so far. */
  readonly accepted: string[];
  kill(): Promise<void>;
}

async function start(directory: string, port: number, count: number): Promise<Started> {
  const given = JSON.stringify({ directory, port, token: TOKEN, count });
  const child = Bun.spawn([process.execPath, FIXTURE, given], {
    stdout: "pipe",
    stderr: "inherit",
    stdin: "ignore",
  });
  undo.push(async () => {
    child.kill("SIGKILL");
    await child.exited;
  });
  const lines: string[] = [];
  const { opened, open } = gate();
  const reading = (async () => {
    let rest = "";
    const decoder = new TextDecoder();
    for await (const bytes of child.stdout) {
      const parts = `${rest}${decoder.decode(bytes, { stream: true })}`.split("\n");
      rest = parts.pop() ?? "";
      lines.push(...parts);
      if (lines.length > 0) open();
    }
  })();
  await opened;
  const accepted = () => lines.slice(1);
  return {
    port: Number(lines[0]),
    get accepted() {
      return accepted();
    },
    kill: async () => {
      child.kill("SIGKILL");
      await child.exited;
      await reading;
    },
  };
}

test(
  "killed under load again and again: each task has one end, and none ran twice",
  async () => {
    const folder = new TempDir();
    undo.push(() => folder[Symbol.dispose]());
    const directory = folder.join("data");
    const witnesses = (): string[] =>
      existsSync(`${directory}/witness`)
        ? readFileSync(`${directory}/witness`, "utf8").split("\n").slice(0, -1)
        : [];
    let port = 0;
    const accepted: string[] = [];
    let worker: WorkerHere | null = null;
    for (let round = 0; round < ROUNDS; round += 1) {
      const before = witnesses().length;
      const plane = await start(directory, port, 1000);
      port = plane.port;
      if (worker === null) {
        const here = await startWorkerHere({ port, slots: 3, isIdle: true }, folder.join("worker"));
        undo.push(async () => {
          await here.worker.kill();
          await here.ended;
        });
        worker = here;
      }
      await until(() => witnesses().length > before + 10 && plane.accepted.length > 20);
      await plane.kill();
      accepted.push(...plane.accepted);
    }
    const store = await openStore({ path: `${directory}/cprg.db` });
    const unfinished = await Promise.all(
      (["claiming", "running", "queued"] as const).map((status) =>
        store.tasks.unfinished({ status, limit: 1000 }),
      ),
    );
    const [claiming = [], running = [], queued = []] = unfinished;
    expect(queued.length).toBeGreaterThan(0);
    const plane = await ControlPlane.create({ store, ownsStore: false, recoverQueued: true });
    expect(plane.counts.queued).toBe(queued.length);
    const started = witnesses();
    expect(new Set(started).size).toBe(started.length);
    const ends: Record<string, number> = {};
    for (const id of accepted) {
      const task = await plane.task(id);
      const key = task.status === "failed" ? `${task.status} ${task.reason}` : task.status;
      ends[key] = (ends[key] ?? 0) + 1;
      const lines = await allLines(store.events, `task:${id}`);
      const finished = lines.filter(({ line }) => JSON.parse(line).kind === "finished").length;
      expect(finished).toBe(task.status === "queued" ? 0 : 1);
      // What was started was not queued again; what waits was never started.
      if (task.status === "queued") expect(started).not.toContain(id);
      if (task.status === "succeeded") expect(started).toContain(id);
    }
    for (const { id } of [...claiming, ...running]) {
      expect(await plane.task(id)).toMatchObject({ status: "failed", reason: "interrupted" });
    }
    expect(Object.keys(ends).sort()).toEqual(["failed interrupted", "queued", "succeeded"]);
    await plane.stop();
    await store.close();
  },
  ROUNDS * ROUND_MS_MAX,
);
