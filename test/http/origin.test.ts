// Whom requests name and which pages they come from, over raw connections: clients write these
// headers themselves.

import { describe, expect, test } from "bun:test";
import { connect } from "node:net";
import { KEY_A, python, useServer } from "./fixture.ts";

const app = { allowedHosts: ["cprg.example.org"] };
const body = JSON.stringify(python("1"));

/** Sends a request with these headers alone and returns the answer, as far as it comes at once. */
async function send(port: number, request: string, headers: readonly string[]): Promise<string> {
  const socket = connect({ host: "127.0.0.1", port });
  socket.write(
    `${[request, ...headers].join("\r\n")}\r\n\r\n${request.startsWith("POST") ? body : ""}`,
  );
  const answer = await new Promise<string>((resolve) => {
    socket.once("data", (chunk) => resolve(chunk.toString()));
    socket.once("close", () => resolve("closed"));
  });
  socket.destroy();
  return answer;
}

function submit(port: number, headers: readonly string[]): Promise<string> {
  return send(port, "POST /v1/jobs HTTP/1.1", [
    `Authorization: Bearer ${KEY_A}`,
    "Content-Type: application/json",
    `Content-Length: ${body.length}`,
    ...headers,
  ]);
}

describe("the Host of a request", () => {
  test.each([
    "127.0.0.1:7300",
    "127.0.0.1",
    "[::1]:7300",
    "10.1.2.3:80",
    "localhost:1",
    "LOCALHOST.",
    "app.localhost",
    "cprg.example.org",
    "CPRG.example.org:443",
  ])("%s is answered", async (host) => {
    await using fixture = await useServer({ app });
    const answer = await send(fixture.server.port, "GET /healthz HTTP/1.1", [`Host: ${host}`]);
    expect(answer).toStartWith("HTTP/1.1 200");
  });

  test.each([
    "evil.example",
    "evil.example:7300",
    "cprg.example.org.evil.example",
    "xcprg.example.org",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1@evil.example",
    "[::1].evil.example",
  ])("%s is misdirected, whatever is asked", async (host) => {
    await using fixture = await useServer({ app });
    const { port } = fixture.server;
    for (const path of ["/healthz", "/v1/jobs", "/nothing"]) {
      const answer = await send(port, `GET ${path} HTTP/1.1`, [
        `Host: ${host}`,
        `Authorization: Bearer ${KEY_A}`,
      ]);
      expect(answer).toMatch(/^HTTP\/1\.1 (421|400)/);
      if (answer.startsWith("HTTP/1.1 421")) expect(answer).toContain("HOST_NOT_ALLOWED");
    }
    expect(await submit(port, [`Host: ${host}`])).toMatch(/^HTTP\/1\.1 (421|400)/);
    expect(await fixture.store.jobs.queuedCount()).toBe(0);
  });

  test("one that is missing or given twice is not answered", async () => {
    await using fixture = await useServer({ app });
    const { port } = fixture.server;
    expect(await send(port, "GET /healthz HTTP/1.0", [])).not.toContain("200 OK");
    const twice = ["Host: localhost", "Host: evil.example"];
    expect(await send(port, "GET /healthz HTTP/1.1", twice)).not.toContain("200 OK");
  });
});

describe("the Origin of a request", () => {
  test.each([
    ["none, as programs send it", []],
    ["the server's own", ["Origin: http://localhost:7300"]],
    ["the server's own behind a proxy that ends TLS", ["Origin: https://localhost:7300"]],
    ["one of the names", ["Origin: https://cprg.example.org"]],
  ])("%s may change things", async (_, headers) => {
    await using fixture = await useServer({ app });
    const answer = await submit(fixture.server.port, ["Host: localhost:7300", ...headers]);
    expect(answer).toStartWith("HTTP/1.1 201");
  });

  test.each([
    "http://evil.example",
    "http://localhost:3000",
    "http://localhost:7300.evil.example",
    "http://evil.example/@localhost:7300",
    "http://localhost:7300@evil.example",
    "null",
    "",
    "file://",
  ])("%p may neither change things nor open a stream, and may read", async (origin) => {
    await using fixture = await useServer({ app });
    const { port } = fixture.server;
    const headers = ["Host: localhost:7300", `Origin: ${origin}`];
    const answer = await submit(port, headers);
    expect(answer).toStartWith("HTTP/1.1 403");
    expect(answer).toContain("ORIGIN_NOT_ALLOWED");
    const { json } = await fixture.ask("/v1/jobs", {
      body: python("1"),
      headers: { Host: "localhost" },
    });
    const upgrade = await send(port, `GET /v1/jobs/${json.job_id}/stream?key=${KEY_A} HTTP/1.1`, [
      ...headers,
      "Connection: Upgrade",
      "Upgrade: websocket",
      "Sec-WebSocket-Version: 13",
      "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ]);
    expect(upgrade).toStartWith("HTTP/1.1 403");
    const read = await send(port, "GET /healthz HTTP/1.1", headers);
    expect(read).toStartWith("HTTP/1.1 200");
  });
});
