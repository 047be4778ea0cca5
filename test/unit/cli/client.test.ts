// The HTTP client against small servers on loopback that answer well, badly, or not at all.

import { afterEach, describe, expect, test } from "bun:test";
import { download, parseServer, requestJson, type ServerAccess } from "../../../src/cli/client.ts";
import { exitCodeOfError } from "../../../src/cli/exit-code.ts";
import { CprgError } from "../../../src/core/errors.ts";

const stops: (() => unknown)[] = [];
afterEach(() => {
  for (const stop of stops.splice(0)) stop();
});

function serve(answer: (request: Request) => Response | Promise<Response>): ServerAccess {
  const server = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: answer });
  stops.push(() => server.stop(true));
  return { url: parseServer(`http://127.0.0.1:${server.port}`), key: "k" };
}

async function failure(access: ServerAccess, timeoutMs = 10_000): Promise<CprgError> {
  try {
    await requestJson(access, { path: "/x", timeoutMs });
  } catch (error) {
    if (CprgError.is(error)) return error;
    throw error;
  }
  throw new Error("it succeeded");
}

describe("requestJson()", () => {
  test("sends method, key and body, beneath the server's path", async () => {
    const access = serve(async (request) =>
      Response.json({
        method: request.method,
        path: new URL(request.url).pathname,
        key: request.headers.get("authorization"),
        body: await request.json(),
      }),
    );
    const url = parseServer(`${access.url.origin}/base/`);
    const request = { method: "POST", path: "/v1/x", body: { a: 1 } } as const;
    expect((await requestJson({ ...access, url }, request)).body).toEqual({
      method: "POST",
      path: "/base/v1/x",
      key: "Bearer k",
      body: { a: 1 },
    });
  });

  test("goes to this machine directly, whatever proxy is set", async () => {
    const access = serve(() => Response.json({}));
    const before = process.env["HTTP_PROXY"];
    process.env["HTTP_PROXY"] = "http://127.0.0.1:9";
    try {
      expect((await requestJson(access, { path: "/" })).status).toBe(200);
    } finally {
      if (before === undefined) delete process.env["HTTP_PROXY"];
      else process.env["HTTP_PROXY"] = before;
    }
  });

  test("turns a problem into the error that it states", async () => {
    const problem = {
      type: "about:blank",
      title: "Not found",
      status: 404,
      code: "not_found",
      detail: "Cannot find job",
      hint: "h",
      request_id: "r",
    };
    const error = await failure(serve(() => Response.json(problem, { status: 404 })));
    expect(error).toMatchObject({ code: "not_found", message: "Cannot find job", hint: "h" });
    expect(error.op).toContain("r");
    expect(exitCodeOfError(error)).toBe(1);
  });

  test.each([
    [401, "unauthenticated", 3],
    [403, "permission_denied", 3],
    [404, "not_found", 1],
    [503, "unavailable", 1],
    [431, "unknown", 1],
  ])("reads status %d without a problem as %s", async (status, code, exit) => {
    const error = await failure(serve(() => new Response("<html>", { status })));
    expect(error.code).toBe(code as CprgError["code"]);
    expect(exitCodeOfError(error)).toBe(exit);
  });

  test("is told apart from a server that is none of ours", async () => {
    const error = await failure(serve(() => new Response("hello")));
    expect(error.message).toContain("no JSON of cprg");
    expect(exitCodeOfError(error)).toBe(1);
  });

  test("says that nobody listens, or answers", async () => {
    const access = serve(() => new Promise<Response>(() => undefined));
    expect(exitCodeOfError(await failure(access, 20))).toBe(4);
    for (const stop of stops.splice(0)) stop();
    const error = await failure(access);
    expect(error.message).toContain("connection refused");
    expect(exitCodeOfError(error)).toBe(4);
  });

  test("follows no redirect, which could carry the key away", async () => {
    let asked = 0;
    const other = serve(() => {
      asked += 1;
      return Response.json({});
    });
    const access = serve(() => Response.redirect(`${other.url.origin}/`, 307));
    expect(exitCodeOfError(await failure(access))).toBe(4);
    expect(asked).toBe(0);
  });
});

describe("download()", () => {
  test("hands on what its taker throws, and tells it from a server that is gone", async () => {
    const access = serve(() => new Response("x".repeat(100_000)));
    const full = Object.assign(new Error("no space"), { code: "ENOSPC", syscall: "write" });
    const taking = download(access, { path: "/x" }, async () => await Promise.reject(full));
    await expect(taking).rejects.toBe(full);
  });

  test("says that the server is gone when its answer breaks off", async () => {
    const head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";
    const server = Bun.listen({
      port: 0,
      hostname: "127.0.0.1",
      socket: {
        data: (socket) => {
          socket.write(head);
          socket.end();
        },
      },
    });
    stops.push(() => server.stop(true));
    const access = { url: parseServer(`http://127.0.0.1:${server.port}`), key: null };
    const taken: string[] = [];
    const failed = await download(access, { path: "/x" }, async (bytes) => {
      taken.push(Buffer.from(bytes).toString());
    }).then(
      () => null,
      (error: unknown) => error,
    );
    if (!CprgError.is(failed)) throw new Error(`it ended with ${String(failed)}`);
    expect(exitCodeOfError(failed)).toBe(4);
  });
});

test.each(["", "x", "ftp://a", "127.0.0.1:7300", "http://u:p@a", "http://a/?x", "http://a/#x"])(
  "parseServer() refuses %j",
  (text) => {
    expect(() => parseServer(text)).toThrow("Cannot use server");
  },
);
