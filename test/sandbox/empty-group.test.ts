import { expect } from "bun:test";
import { readFileSync } from "node:fs";
import type { ExecGroup } from "../../src/sandbox/cgroup.ts";
import { emptyGroup } from "../../src/sandbox/empty-group.ts";
import { requireHost } from "../helpers/host.ts";
import { PYTHON, until } from "./test-engine.ts";

const host = requireHost({ linux: true });

/** Forks a child that ends as told, and never reaps it. */
const parentOf = (child: string): string =>
  `import ctypes, os, threading, time\npid = os.fork()\nif pid == 0:\n  ${child}\nprint(pid, flush=True)\ntime.sleep(1000)\n`;
const DEAD = "os._exit(0)";
const DEAD_LEADER =
  "threading.Thread(target=lambda: time.sleep(1000)).start(); ctypes.CDLL(None).pthread_exit(0)";

/** Whether an empty group counts as reaped at once, without a look at the clock. */
async function isReapedAtOnce(child: string): Promise<boolean> {
  const parent = Bun.spawn([PYTHON, "-c", parentOf(child)], { stdout: "pipe" });
  const { value } = await parent.stdout.getReader().read();
  const pid = Number(Buffer.from(value ?? []).toString());
  try {
    await until("it looks dead", () => / Z /.test(readFileSync(`/proc/${pid}/stat`, "utf8")));
    let isDone = false;
    const group = { isEmpty: () => true } as ExecGroup;
    const emptied = emptyGroup(group, { initPid: parent.pid, kill: () => undefined }).then(() => {
      isDone = true;
    });
    await Promise.resolve();
    await Promise.resolve();
    const atOnce = isDone;
    process.kill(pid, "SIGKILL");
    parent.kill("SIGKILL");
    await Promise.all([emptied, parent.exited]);
    return atOnce;
  } finally {
    parent.kill("SIGKILL");
  }
}

host.test("a zombie is waited for", async () => {
  expect(await isReapedAtOnce(DEAD)).toBe(false);
});

host.test("a process that lives without its main thread is none", async () => {
  expect(await isReapedAtOnce(DEAD_LEADER)).toBe(true);
});
