import { expect } from "bun:test";
import { requireHost } from "../helpers/host.ts";
import { KEY_B, openSocket, useSandboxServer } from "./sandbox-server.ts";
import { until } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

host.describe("sandboxes over HTTP", () => {
  const server = useSandboxServer({ tenantSandboxes: 6 });

  host.test("open with effective limits, are listed, and end once", async () => {
    const asked = {
      limits: { mem_mb: 128, pids: 99_999 },
      labels: { team: "blue" },
      idle_seconds: 30.5,
      lifetime_seconds: 1e9,
    };
    const opened = await server.ask("/v1/sandboxes", { body: asked });
    expect(opened.status).toBe(201);
    expect(opened.json).toMatchObject({
      tenant: "a",
      status: "open",
      reason: null,
      labels: { team: "blue" },
      idle_seconds: 30.5,
      lifetime_seconds: 86_400,
      ended_at: null,
    });
    expect(opened.json.limits).toMatchObject({ mem_mb: 128, pids: 1024 });
    const id = opened.json.sandbox_id;
    expect(opened.headers.get("location")).toBe(`/v1/sandboxes/${id}`);
    expect((await server.ask(`/v1/sandboxes/${id}`)).json).toEqual(opened.json);
    const listed = await server.ask("/v1/sandboxes");
    expect(listed.json.sandboxes.map((one: { sandbox_id: string }) => one.sandbox_id)).toEqual([
      id,
    ]);
    const ended = await server.ask(`/v1/sandboxes/${id}`, { method: "DELETE" });
    expect(ended.json).toMatchObject({ status: "ended", reason: "user" });
    expect((await server.ask("/v1/sandboxes")).json.sandboxes).toEqual([]);
    expect((await server.ask("/v1/sandboxes?status=any")).json.sandboxes).toHaveLength(1);
    const again = await server.ask(`/v1/sandboxes/${id}`, { method: "DELETE" });
    expect([again.status, again.json.reason]).toEqual([409, "SANDBOX_ENDED"]);
    expect(
      (await server.ask(`/v1/sandboxes/${id}/execs`, { body: { argv: ["true"] } })).status,
    ).toBe(409);
    expect(server.engine.status().sandboxes).toBe(0);
  });

  host.test("refuse what cannot be meant, naming the field", async () => {
    const wrong: [object, string][] = [
      [{ idle_seconds: 0 }, "idle_seconds"],
      [{ lifetime_seconds: -1 }, "lifetime_seconds"],
      [{ limits: { mem_mb: 0 } }, "limits.mem_mb"],
      [{ env: { "a=b": "" } }, "env.a=b"],
      [{ labels: { "": "" } }, "labels."],
      [{ image: "debian" }, "image"],
    ];
    for (const [body, field] of wrong) {
      const answer = await server.ask("/v1/sandboxes", { body });
      expect([answer.status, answer.json.field]).toEqual([400, field]);
    }
  });

  host.test("run programs one after the other and at once, in one workspace", async () => {
    const id = await server.open({ env: { NAME: "sandbox's" } });
    expect(await server.sh(id, "echo $NAME > f; exit 3")).toMatchObject({
      status: "failed",
      exit_code: 3,
      reason: "exit",
    });
    const more = { env: { NAME: "exec's" }, stdin: "in", directory: "/tmp" };
    const result = await server.sh(id, "cat; pwd; echo $NAME; cat /workspace/f >&2", more);
    expect(result).toMatchObject({
      stdout: "in/tmp\nexec's\n",
      stderr: "sandbox's\n",
      exit_code: 0,
    });
    // Each waits for the file of the next, the last for none: only at once can they end.
    const waits = [1, 2, 3].map((n) =>
      server.sh(id, `touch m${n}; until test -e m${(n % 3) + 1}; do sleep 0.01; done; echo ${n}`),
    );
    expect((await Promise.all(waits)).map(({ stdout }) => stdout)).toEqual(["1\n", "2\n", "3\n"]);
    const listed = await server.ask(`/v1/sandboxes/${id}/execs?limit=2`);
    expect(listed.json.execs).toHaveLength(2);
    expect(listed.json.next_cursor).not.toBeNull();
    await server.ask(`/v1/sandboxes/${id}`, { method: "DELETE" });
  });

  host.test("log every exec, also one that never ran", async () => {
    const id = await server.open();
    const ran = await server.sh(id, "echo out; echo err >&2");
    const kinds = (await server.events(ran.exec_id)).map(({ kind }) => kind);
    expect(kinds[0]).toBe("started");
    expect(kinds.at(-1)).toBe("finished");
    expect(kinds).toContain("stdout");
    expect(kinds).toContain("stderr");
    const body = { argv: ["/no/such/program"] };
    const failed = await server.ask(`/v1/sandboxes/${id}/execs`, { body });
    expect(failed.json).toMatchObject({ status: "error", reason: "setup_failed", exit_code: null });
    const events = await server.events(failed.json.exec_id);
    expect(events.map(({ kind }) => kind)).toEqual(["finished"]);
    await server.ask(`/v1/sandboxes/${id}`, { method: "DELETE" });
    // What ended stays to be looked at.
    expect((await server.ask(`/v1/execs/${ran.exec_id}/result`)).json.stdout).toBe("out\n");
  });

  host.test("stream as server-sent events, which go on after the last one seen", async () => {
    const id = await server.open();
    const headers = { Accept: "text/event-stream" };
    const body = { argv: ["/bin/sh", "-c", "echo one; exit 4"] };
    const { text, headers: got } = await server.ask(`/v1/sandboxes/${id}/execs`, { body, headers });
    expect(got.get("content-type")).toBe("text/event-stream");
    const names = [...text.matchAll(/^event: (.*)$/gm)].map(([, name]) => name);
    expect(names.slice(0, 2)).toEqual(["exec", "started"]);
    expect(names.at(-1)).toBe("finished");
    const execPath = got.get("location") ?? "";
    const resumed = await server.ask(`${execPath}/events`, { headers: { "Last-Event-ID": "1" } });
    expect(resumed.text.split("\n\n").slice(1)).toEqual(text.split("\n\n").slice(2));
    await server.ask(`/v1/sandboxes/${id}`, { method: "DELETE" });
  });

  host.test("stream over a WebSocket with input, signals and a resize on the way", async () => {
    const id = await server.open();
    const body = {
      argv: ["/bin/bash", "--norc", "-i"],
      tty: { columns: 70, rows: 20 },
      env: { PS1: "$ " },
    };
    const started = await server.ask(`/v1/sandboxes/${id}/execs`, { body });
    expect(started.status).toBe(202);
    expect(started.json).toMatchObject({ status: "running", tty: true });
    const path = `/v1/execs/${started.json.exec_id}`;
    using socket = openSocket(server.url, `${path}/stream?from_seq=1`);
    const type = async (text: string) =>
      expect((await server.ask(`${path}/input`, { method: "POST", body: text })).status).toBe(204);
    await type("stty size\n");
    await until("the size", () => socket.output().includes("20 70"));
    const size = { columns: 90, rows: 33 };
    expect((await server.ask(`${path}/resize`, { body: size })).status).toBe(204);
    for (const [half, missing] of [
      [{ columns: 9 }, "rows"],
      [{}, "columns"],
    ] as const) {
      const refused = await server.ask(`${path}/resize`, { body: half });
      expect([refused.status, refused.json.field]).toEqual([400, missing]);
    }
    await type("stty size\n");
    await until("the new size", () => socket.output().includes("33 90"));
    await type("exit 6\n");
    expect(await socket.closed).toBe(1000);
    const result = await server.ask(`${path}/result`);
    expect(result.json).toMatchObject({ exit_code: 6, stderr: "" });
    const late = await server.ask(`${path}/input`, { method: "POST", body: "x" });
    expect([late.status, late.json.reason]).toEqual([409, "EXEC_ENDED"]);
    await server.ask(`/v1/sandboxes/${id}`, { method: "DELETE" });
  });

  host.test("take input in parts, its end, and signals", async () => {
    const id = await server.open();
    const body = { argv: ["/bin/cat"], stdin_open: true };
    const { json } = await server.ask(`/v1/sandboxes/${id}/execs`, { body });
    const path = `/v1/execs/${json.exec_id}`;
    await server.ask(`${path}/input`, { method: "POST", body: "a" });
    await server.ask(`${path}/input?eof=true`, { method: "POST", body: "b" });
    expect((await server.ask(`${path}/result`)).json).toMatchObject({ stdout: "ab", exit_code: 0 });
    const sleeper = await server.ask(`/v1/sandboxes/${id}/execs?wait_seconds=0`, {
      body: { argv: ["sleep", "100"] },
    });
    const other = `/v1/execs/${sleeper.json.exec_id}`;
    expect((await server.ask(`${other}/signal`, { body: { signal: "SIGNONE" } })).status).toBe(400);
    expect((await server.ask(`${other}/signal`, { body: { signal: "SIGINT" } })).status).toBe(204);
    expect((await server.ask(`${other}/result`)).json).toMatchObject({ signal: "SIGINT" });
    await server.ask(`/v1/sandboxes/${id}`, { method: "DELETE" });
  });

  host.test("cancel an exec and keep the sandbox", async () => {
    const id = await server.open();
    const { json } = await server.ask(`/v1/sandboxes/${id}/execs?wait_seconds=0`, {
      body: { argv: ["sleep", "100"] },
    });
    const cancelled = await server.ask(`/v1/execs/${json.exec_id}`, { method: "DELETE" });
    expect(cancelled.json).toMatchObject({ status: "cancelled", reason: "user" });
    expect((await server.ask(`/v1/execs/${json.exec_id}`, { method: "DELETE" })).status).toBe(409);
    expect((await server.sh(id, "echo alive")).stdout).toBe("alive\n");
    await server.ask(`/v1/sandboxes/${id}`, { method: "DELETE" });
  });

  host.test("end when idle, but not while something runs", async () => {
    const id = await server.open({ idle_seconds: 1 });
    expect((await server.sh(id, "sleep 1.5; echo done")).stdout).toBe("done\n");
    await until("it is idle", async () => {
      const { json } = await server.ask(`/v1/sandboxes/${id}`);
      return json.status === "ended";
    });
    expect((await server.ask(`/v1/sandboxes/${id}`)).json).toMatchObject({ reason: "idle" });
    const { created_at, ended_at } = (await server.ask(`/v1/sandboxes/${id}`)).json;
    expect(Date.parse(ended_at) - Date.parse(created_at)).toBeGreaterThanOrEqual(2500);
  });

  host.test("end with their lifetime, whatever runs", async () => {
    const id = await server.open({ lifetime_seconds: 1 });
    const result = await server.sh(id, "trap '' TERM; sleep 100");
    expect(result).toMatchObject({ status: "error", reason: "lifetime" });
    await until("it has ended", async () => {
      const { json } = await server.ask(`/v1/sandboxes/${id}`);
      return json.reason === "lifetime";
    });
  });

  host.test("are as many as the tenant may have", async () => {
    const ids = await Promise.all([1, 2, 3, 4, 5, 6].map(() => server.open()));
    const refused = await server.ask("/v1/sandboxes", { body: {} });
    expect([refused.status, refused.json.reason]).toEqual([429, "TENANT_SANDBOXES"]);
    const other = await server.ask("/v1/sandboxes", { body: {}, key: KEY_B });
    expect(other.status).toBe(201);
    const all = [...ids.map((id) => ({ id })), { id: other.json.sandbox_id, key: KEY_B }];
    for (const { id, ...how } of all) {
      expect((await server.ask(`/v1/sandboxes/${id}`, { method: "DELETE", ...how })).status).toBe(
        200,
      );
    }
  });

  host.test("do not exist for another tenant, on any route", async () => {
    const id = await server.open();
    const { json } = await server.ask(`/v1/sandboxes/${id}/execs?wait_seconds=0`, {
      body: { argv: ["sleep", "100"] },
    });
    const box = `/v1/sandboxes/${id}`;
    const exec = `/v1/execs/${json.exec_id}`;
    const asks: [string, string, unknown?][] = [
      ["GET", box],
      ["DELETE", box],
      ["GET", `${box}/execs`],
      ["POST", `${box}/execs`, { argv: ["true"] }],
      ["GET", `${box}/files/x`],
      ["PUT", `${box}/files/x`, "x"],
      ["DELETE", `${box}/files/x`],
      ["GET", exec],
      ["DELETE", exec],
      ["GET", `${exec}/result`],
      ["GET", `${exec}/replay`],
      ["GET", `${exec}/events`],
      ["GET", `${exec}/stream`],
      ["POST", `${exec}/input`, "x"],
      ["POST", `${exec}/signal`, { signal: "SIGKILL" }],
      ["POST", `${exec}/resize`, { columns: 1, rows: 1 }],
    ];
    for (const [method, path, body] of asks) {
      const answer = await server.ask(path, { method, body, key: KEY_B });
      expect([method, path, answer.status]).toEqual([method, path, 404]);
    }
    expect((await server.ask(exec)).json.status).toBe("running");
    await server.ask(box, { method: "DELETE" });
    expect((await server.ask(exec)).json).toMatchObject({ status: "cancelled", reason: "user" });
  });
});
