import { describe, expect, test } from "bun:test";
import { KEY_A, KEY_B, python, requestInit, useApp, useServer } from "./fixture.ts";

interface Sent {
  readonly id: number;
  readonly event: string;
  readonly data: { seq: number; kind: string; data: unknown };
}

function parse(text: string): Sent[] {
  return text
    .split("\n\n")
    .filter((block) => block.startsWith("id:"))
    .map((block) => {
      const fields = Object.fromEntries(
        block
          .split("\n")
          .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]),
      );
      return {
        id: Number(fields["id"]),
        event: fields["event"] ?? "",
        data: JSON.parse(fields["data"] ?? ""),
      };
    });
}

async function submit(ask: Awaited<ReturnType<typeof useApp>>["ask"]): Promise<string> {
  return (await ask("/v1/jobs", { body: python("print(1)\u2028\n") })).json.job_id;
}

describe("GET /v1/jobs/{id}/events", () => {
  test("sends the log of a job as it grows, and ends after finished", async () => {
    const go = Promise.withResolvers<void>();
    await using server = await useServer({
      fake: {
        run: async (program) => {
          await program.out("one\r\n\r\ndata: x");
          await go.promise;
          return 0;
        },
      },
    });
    const id = await submit(server.ask);
    const response = await fetch(
      new URL(`/v1/jobs/${id}/events`, server.server.url),
      requestInit({}),
    );
    expect(response.headers.get("content-type")).toBe("text/event-stream");
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    while (!text.includes("one")) text += (await reader?.read())?.value ?? "";
    expect(text).not.toContain("finished");
    go.resolve();
    for (let part = await reader?.read(); part?.done === false; part = await reader?.read()) {
      text += part.value;
    }
    const sent = parse(text);
    expect(sent.map((one) => one.id)).toEqual(sent.map((_, index) => index + 1));
    expect(sent.map((one) => one.event)).toEqual(["queued", "started", "stdout", "finished"]);
    expect(sent.map((one) => one.data.kind)).toEqual(sent.map((one) => one.event));
    expect(sent[2]?.data.data).toBe("one\r\n\r\ndata: x");
  });

  test("goes on after Last-Event-ID, or from from_seq", async () => {
    const { ask } = await useApp();
    const id = await submit(ask);
    await ask(`/v1/jobs/${id}/result`);
    const all = parse((await ask(`/v1/jobs/${id}/events`)).text);
    const after = async (path: string, headers: Record<string, string>) =>
      parse((await ask(`/v1/jobs/${id}/events${path}`, { headers })).text).map((one) => one.id);
    expect(await after("", { "Last-Event-ID": "2" })).toEqual(all.slice(2).map((one) => one.id));
    expect(await after("?from_seq=2", {})).toEqual(all.slice(1).map((one) => one.id));
    expect(await after("?from_seq=1", { "Last-Event-ID": `${all.length}` })).toEqual([]);
    const wrong = await ask(`/v1/jobs/${id}/events`, { headers: { "Last-Event-ID": "x" } });
    expect(wrong).toMatchObject({ status: 400, json: { field: "Last-Event-ID" } });
    expect((await ask(`/v1/jobs/${id}/events`, { key: KEY_B })).status).toBe(404);
  });

  test("takes a place, and gives it back when the client goes", async () => {
    await using server = await useServer({
      fake: { run: () => new Promise<number>(() => undefined) },
      app: { streamsTenantMax: 1 },
    });
    const id = await submit(server.ask);
    const url = new URL(`/v1/jobs/${id}/events`, server.server.url);
    const gone = new AbortController();
    const open = await fetch(url, {
      headers: { Authorization: `Bearer ${KEY_A}` },
      signal: gone.signal,
    });
    expect(open.status).toBe(200);
    const full = await server.ask(url.pathname);
    expect(full).toMatchObject({ status: 503, json: { reason: "STREAMS_FULL" } });
    gone.abort();
    const retry = async (): Promise<number> => {
      const again = new AbortController();
      const response = await fetch(url, {
        headers: { Authorization: `Bearer ${KEY_A}` },
        signal: again.signal,
      });
      again.abort();
      return response.status;
    };
    // Each look is a whole request, so that the server has its turns in between.
    let status = await retry();
    while (status !== 200) status = await retry();
    expect(server.feed.subscribers).toBeLessThanOrEqual(1);
  });

  test("of an exec takes one too, and where there is none no program starts", async () => {
    const { app, ask } = await useApp({
      fake: { run: () => new Promise<number>(() => undefined) },
      app: { streamsTenantMax: 1 },
    });
    const { sandbox_id } = (await ask("/v1/sandboxes", { body: {} })).json;
    const path = `/v1/sandboxes/${sandbox_id}/execs`;
    const how = { body: { argv: ["x"] }, headers: { Accept: "text/event-stream" } };
    const open = await app.request(path, requestInit(how));
    const full = { status: 503, json: { reason: "STREAMS_FULL" } };
    expect(await ask(path, how)).toMatchObject(full);
    expect((await ask(path)).json.execs).toHaveLength(1);
    const events = `${open.headers.get("location")}/events`;
    expect(await ask(events)).toMatchObject(full);
    await open.body?.cancel();
    const again = await app.request(events, requestInit({}));
    expect(again.status).toBe(200);
    await again.body?.cancel();
  });

  test.each(["replay", "replay?format=ndjson", "result"])(
    "%s takes one for as long as it is sent, and a short one none",
    async (end) => {
      const text = "x".repeat(64 * 1024);
      const { app, ask } = await useApp({
        fake: {
          run: async ({ out, code }) => {
            for (let count = 0; count < Number(code); count += 1) await out(text);
            return 0;
          },
        },
        app: { streamsTenantMax: 1 },
      });
      const run = async (count: number): Promise<string> => {
        const { job_id } = (await ask("/v1/jobs", { body: python(String(count)) })).json;
        const path = `/v1/jobs/${job_id}/result`;
        while ((await ask(path, { method: "HEAD" })).status !== 200) {}
        return `/v1/jobs/${job_id}/${end}`;
      };
      const [long, short] = [await run(32), await run(0)];
      const open = await app.request(long, requestInit({}));
      expect(open.status).toBe(200);
      expect(await ask(long)).toMatchObject({ status: 503, json: { reason: "STREAMS_FULL" } });
      if (!end.includes("ndjson")) expect((await ask(short)).status).toBe(200);
      await open.body?.cancel();
      expect((await ask(long)).status).toBe(200);
      expect((await ask(long)).status).toBe(200);
    },
  );

  test("answers HEAD without holding a place", async () => {
    const { ask, feed } = await useApp({
      fake: { run: () => new Promise<number>(() => undefined) },
      app: { streamsTenantMax: 1 },
    });
    const id = await submit(ask);
    for (let count = 0; count < 3; count += 1) {
      const head = await ask(`/v1/jobs/${id}/events`, { method: "HEAD" });
      expect([head.status, head.text]).toEqual([200, ""]);
    }
    expect(feed.subscribers).toBe(0);
  });
});
