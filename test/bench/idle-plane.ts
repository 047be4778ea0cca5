// A control plane in a process of its own, whose memory is measured. Answers each line of its input:
//   connected N    once so many workers are; with its resident memory
//   round          claims every worker once, and lets it go

import { createInterface } from "node:readline";
import { startPlane } from "../worker/process.ts";

const SETTLE_MS = 500;

const plane = await startPlane({ liveness: { heartbeatSeconds: 30, silenceMs: 600_000 } });

function say(fields: Readonly<Record<string, number>>): void {
  process.stdout.write(`${JSON.stringify(fields)}\n`);
}

async function connected(count: number): Promise<void> {
  while (plane.registry.connected.length < count) await Bun.sleep(10);
  await Bun.sleep(SETTLE_MS);
  Bun.gc(true);
  say({ rss: process.memoryUsage.rss() });
}

async function round(): Promise<void> {
  const count = plane.registry.connected.length;
  const claims = await Promise.all(
    Array.from({ length: count }, (_, index) =>
      plane.registry.claim({ taskId: `t${index}`, epoch: 1 }),
    ),
  );
  await Promise.all(claims.map((claim) => claim.release()));
  say({ answered: claims.length });
}

Bun.gc(true);
say({ port: plane.port, rss: process.memoryUsage.rss() });
for await (const line of createInterface({ input: process.stdin })) {
  const [what, count] = line.split(" ");
  if (what === "connected") await connected(Number(count));
  else await round();
}
