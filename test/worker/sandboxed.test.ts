// Claims in sandboxes: files through a program inside, execs without the worker's secrets, slots.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import {
  EXEC_START,
  FS_LIST_DIR,
  FS_MAKE_DIR,
  FS_READ_FILE,
  FS_REMOVE,
  FS_RENAME,
  FS_STAT,
  FS_WRITE_FILE,
  WORKER_CLAIM,
} from "../../src/bridge/methods.ts";
import type { ClaimLink } from "../../src/control-plane/claim-link.ts";
import { WorkerLease } from "../../src/control-plane/worker-provider.ts";
import { requireHost } from "../helpers/host.ts";
import { refusal } from "./ground.ts";
import {
  type Plane,
  startPlane,
  startWorkerProcess,
  TOKEN,
  type WorkerProcess,
} from "./process.ts";

const host = requireHost({ sandbox: true });

host.describe("a worker with sandboxes", () => {
  let plane: Plane;
  let worker: WorkerProcess;
  let claimed: ClaimLink;

  beforeAll(async () => {
    plane = await startPlane();
    worker = startWorkerProcess(plane.port, {
      isIsolated: true,
      words: ["--token", TOKEN, "--slots", "2"],
    });
    claimed = await plane.registry.claim({ taskId: "t1", epoch: 1, env: { OF_CLAIM: "value" } });
  });

  afterAll(async () => {
    worker.kill("SIGTERM");
    await claimed.release();
    expect(await worker.exited).toBe(0);
    await worker.end();
    await plane.close();
  });

  const sh = async (script: string, on = claimed): Promise<string> => {
    const lease = new WorkerLease(on, {});
    return (await lease.invoke({ executable: "sh", arguments: ["-c", script] })).stdout;
  };

  test("two claims at once see nothing of each other, a third waits", async () => {
    const other = await plane.registry.claim({ taskId: "t2", epoch: 1 });
    await sh("echo mine > /workspace/file; echo mine > /tmp/file", claimed);
    expect(await sh("ls -A /workspace /tmp; env", other)).not.toMatch(/file|OF_CLAIM/);
    const third = claimed.mux.call(WORKER_CLAIM, { taskId: "t3", epoch: 1 });
    expect(await refusal(third)).toBe("already_exists ALREADY_CLAIMED");
    await other.release();
  });

  test("an exec finds neither the token nor the worker: not in /proc, not among its files", async () => {
    const found = await sh("cat /proc/*/environ /proc/*/cmdline; ls -l /proc/*/fd; env");
    expect(found).toContain("OF_CLAIM=value");
    expect(found).not.toContain(TOKEN);
    expect(found).not.toContain(worker.stateDir);
    expect(await sh(`cat ${worker.stateDir}/worker-secret 2>&1; ls -A /root 2>&1`)).toContain(
      "No such",
    );
    expect(readFileSync(`/proc/${worker.pid}/cmdline`, "latin1")).not.toContain(TOKEN);
    expect(readdirSync(worker.stateDir)).toContain("worker-secret");
  });

  test("files: written, read in parts, listed, moved, removed", async () => {
    const { mux, claim } = claimed;
    await mux.call(FS_MAKE_DIR, { claim, path: "d/e", parents: true, mode: 0o750 });
    const content = Buffer.from("0123456789");
    await mux.call(FS_WRITE_FILE, { claim, path: "d/e/f", content, mode: 0o640 });
    const part = await mux.call(FS_READ_FILE, { claim, path: "d/e/f", offset: 3, length: 4 });
    expect(Buffer.from(part.content).toString()).toBe("3456");
    expect(part).toMatchObject({ size: 10, mode: 0o640 });
    const { stat } = await mux.call(FS_STAT, { claim, path: "/workspace/d/e" });
    expect(stat).toMatchObject({ name: "e", type: "directory", mode: 0o750 });
    await mux.call(FS_RENAME, { claim, from: "d/e/f", to: "d/g" });
    await sh("ln -s g /workspace/d/l");
    const { entries } = await mux.call(FS_LIST_DIR, { claim, path: "d" });
    expect(entries.map(({ name, type }) => `${name} ${type}`)).toEqual([
      "e directory",
      "g file",
      "l link",
    ]);
    const remove = (path: string, recursive = false) =>
      mux.call(FS_REMOVE, { claim, path, recursive });
    expect(await refusal(remove("d"))).toBe("failed_precondition NOT_EMPTY");
    expect(await remove("d/l")).toEqual({ existed: true });
    expect(await remove("d", true)).toEqual({ existed: true });
    expect(await remove("d", true)).toEqual({ existed: false });
  });

  test("no path leads out of root and home, and links are refused where they are not meant", async () => {
    const { mux, claim } = claimed;
    await sh("ln -s /etc /workspace/out-link; ln -s /etc/passwd /workspace/file-link");
    const read = (path: string) => refusal(mux.call(FS_READ_FILE, { claim, path }));
    for (const path of ["../etc/passwd", "/etc/passwd", "out-link/passwd"]) {
      expect([path, await read(path)]).toEqual([path, "permission_denied PATH_ESCAPES"]);
    }
    expect(await read("file-link")).toBe("failed_precondition IS_LINK");
    expect(await read("none")).toStartWith("not_found");
    const write = mux.call(FS_WRITE_FILE, { claim, path: "out-link/x", content: Buffer.from("x") });
    expect(await refusal(write)).toBe("permission_denied PATH_ESCAPES");
    await sh("rm /workspace/out-link /workspace/file-link");
  });

  test("a cancelled exec is gone when that is answered, whatever it did to detach itself", async () => {
    const { mux, claim } = claimed;
    const call = mux.stream(EXEC_START, {
      claim,
      command: "env -i setsid sh -c 'sleep 1000' & echo up; sleep 1000",
    });
    const items = call[Symbol.asyncIterator]();
    for (let out = ""; !out.includes("up"); ) {
      out += Buffer.from((await items.next()).value?.stdout ?? []).toString();
    }
    call.cancel("enough");
    // Not `expect().rejects`, which waits inside the callback of the connection that it waits for.
    expect(await refusal(items.next())).toBe("canceled");
    expect(await sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).not.toContain("sleep 1000");
  });

  test("a terminal works, with the sandbox's own", async () => {
    const { mux, claim } = claimed;
    let out = "";
    for await (const item of mux.stream(EXEC_START, {
      claim,
      command: "tty; stty size; echo to > /dev/tty",
      pty: { cols: 90, rows: 30 },
      stdinOpen: true,
    })) {
      out += Buffer.from(item.stdout ?? []).toString();
    }
    expect(out).toContain("/dev/pts/");
    expect(out).toContain("30 90");
    expect(out).toContain("to\r\n");
  });
});
