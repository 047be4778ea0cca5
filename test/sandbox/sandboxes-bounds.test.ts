// What bounds sandboxes that clients hold open, each refused with its reason.

import { expect } from "bun:test";
import { EXECS_MAX, INPUT_WAITING_BYTES_MAX } from "../../src/sandboxes/bounds.ts";
import { requireHost } from "../helpers/host.ts";
import { paced } from "./pace.ts";
import { useSandboxServer } from "./sandbox-server.ts";
import { isInit, pidsOfRange } from "./snapshot.ts";
import { ID_RANGE, until } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

host.describe("bounds of open sandboxes", () => {
  let free = Number.POSITIVE_INFINITY;
  const server = useSandboxServer({ admissionWaitMs: 50, freeDescriptors: () => free });
  const end = (id: string) => server.ask(`/v1/sandboxes/${id}`, { method: "DELETE" });
  const start = (id: string, body: object) =>
    server.ask(`/v1/sandboxes/${id}/execs?wait_seconds=0`, { body });

  host.test("limits that do not fit beside the others are refused after a while", async () => {
    const { capacity } = server.engine.status();
    const mem_mb = Math.min(4096, capacity.memMb);
    const body = { limits: { mem_mb, disk_mb: 1 } };
    const ids: string[] = [];
    for (;;) {
      const { status, json, headers } = await server.ask("/v1/sandboxes", { body });
      if (status === 201) {
        ids.push(json.sandbox_id);
        continue;
      }
      expect([status, json.reason]).toEqual([503, "SANDBOXES_FULL"]);
      expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
      break;
    }
    expect(ids.length).toBe(Math.floor(capacity.memMb / mem_mb));
    for (const id of ids) await end(id);
    await end(await server.open(body));
  });

  host.test("so many programs at once run in one", async () => {
    const id = await server.open({ limits: { pids: 1024, mem_mb: 512 } });
    const sleep = { argv: ["sleep", "1000"], limits: { wall_seconds: paced(30) } };
    const sleeping = Array.from({ length: EXECS_MAX }, () => start(id, sleep));
    for (const { status } of await Promise.all(sleeping)) expect(status).toBe(202);
    const refused = await start(id, { argv: ["true"] });
    expect([refused.status, refused.json.reason]).toEqual([429, "EXECS"]);
    expect((await end(id)).json.status).toBe("ended");
    expect(server.engine.status().sandboxes).toBe(0);
  });

  host.test("input waits for its program up to a bound, and is not lost", async () => {
    const id = await server.open();
    const script = "until test -e go; do sleep 0.01; done; wc -c";
    const { json } = await start(id, { argv: ["sh", "-c", script], stdin_open: true });
    const path = `/v1/execs/${json.exec_id}/input`;
    const half = new Uint8Array(INPUT_WAITING_BYTES_MAX / 2 + 1);
    // More than the pipe holds: the answer comes when the program has taken it.
    const waiting = server.ask(path, { method: "POST", body: half });
    await until("the first waits", async () => {
      const { status } = await server.ask(path, { method: "POST", body: half });
      return status === 429;
    });
    await server.sh(id, "touch go");
    expect((await waiting).status).toBe(204);
    await server.ask(`${path}?eof=true`, { method: "POST" });
    const result = await server.ask(`/v1/execs/${json.exec_id}/result`);
    expect(Number(result.json.stdout) % half.length).toBe(0);
    const tooLarge = await server.ask(path, {
      method: "POST",
      body: new Uint8Array(INPUT_WAITING_BYTES_MAX + 1),
    });
    expect(tooLarge.status).toBe(409);
    await end(id);
  });

  host.test("nothing starts while descriptors run short", async () => {
    const id = await server.open();
    free = 3;
    const refused = [
      await server.ask("/v1/sandboxes", { body: {} }),
      await start(id, { argv: ["true"] }),
    ];
    free = Number.POSITIVE_INFINITY;
    for (const { status, json } of refused)
      expect([status, json.reason]).toEqual([503, "DESCRIPTORS"]);
    expect((await server.sh(id, "echo on")).stdout).toBe("on\n");
    await end(id);
  });

  host.test("output past its bound is cut once, and the program goes on", async () => {
    const id = await server.open();
    const result = await server.sh(id, "head -c 300000 /dev/zero; echo end >&2", {
      limits: { output_kb: 64 },
    });
    expect(result).toMatchObject({ exit_code: 0, stderr: "end\n", truncated: true });
    expect(result.stdout.length).toBe(64 * 1024);
    await end(id);
  });

  host.test("a forbidden call is named in the exec's log, and the sandbox lives on", async () => {
    const id = await server.open();
    const result = await server.sh(id, "unshare -U true; echo survived");
    expect(result).toMatchObject({ status: "failed", reason: "seccomp_violation" });
    expect(result.violations).toMatchObject([{ syscall: "unshare" }]);
    expect((await server.sh(id, "echo on")).stdout).toBe("on\n");
    await end(id);
  });

  host.test("a sandbox that dies by itself is ended when it is next used", async () => {
    const id = await server.open();
    const inits = pidsOfRange(ID_RANGE).filter(isInit);
    expect(inits).toHaveLength(1);
    process.kill(Number(inits[0]), "SIGKILL");
    const result = await server.sh(id, "echo on");
    expect(result.status).toBe("error");
    await until("it has ended", async () => {
      const { json } = await server.ask(`/v1/sandboxes/${id}`);
      return json.reason === "runner_error";
    });
  });
});
