// What clients may send wrong, and what they are told: every refusal names the field.

import { describe, expect, test } from "bun:test";
import { BODY_BYTES_MAX } from "../../src/http/body.ts";
import { CODE_BYTES_MAX } from "../../src/jobs/spec.ts";
import { type Ask, KEY_A, python, useApp } from "./fixture.ts";

const { ask } = await useApp();

async function post(body: unknown, how: Ask = {}) {
  return await ask("/v1/jobs", { body, ...how });
}

describe("POST /v1/jobs refuses", () => {
  const code = (value: unknown) => ({ language: "python", code: value });
  const files = (...list: unknown[]) => python("1", { files: list });
  const file = (path: string, more = {}) => ({ path, text: "", ...more });

  test.each<[string, unknown]>([
    ["body", []],
    ["body", null],
    ["body", "text"],
    ["language", {}],
    ["language", { code: "1" }],
    ["language", { language: 7, code: "1" }],
    ["code", { language: "python" }],
    ["code", code("")],
    ["code", code(null)],
    ["code", code(7)],
    ["code", code("print(1)\0")],
    ["code", code("x\ud800y")],
    ["code", code("x".repeat(CODE_BYTES_MAX + 1))],
    ["colour", python("1", { colour: "red" })],
    ["__proto__", '{"language":"python","code":"1","__proto__":{}}'],
    ["placement.labels.g p u", python("1", { placement: { labels: { "g p u": "1" } } })],
    ["placement.zone", python("1", { placement: { zone: "1" } })],
    ["argv", { argv: [] }],
    ["argv[0]", { argv: [""] }],
    ["argv[1]", { argv: ["/bin/echo", "a\0b"] }],
    ["language", { argv: ["/bin/true"], language: "python" }],
    ["code", { argv: ["/bin/true"], code: "1" }],
    ["args", { argv: ["/bin/true"], args: [] }],
    ["argv", { argv: Array.from({ length: 1025 }, () => "a") }],
    ["argv", { argv: ["a", "x".repeat(128 * 1024)] }],
    ["args", python("1", { args: "a" })],
    ["args[0]", python("1", { args: [1] })],
    ["args[1]", python("1", { args: ["a", "\udc00"] })],
    ["args", python("1", { args: ["x".repeat(128 * 1024)] })],
    ["stdin", python("1", { stdin: null })],
    ["stdin", python("1", { stdin: "\ud800" })],
    ["stdin_base64", python("1", { stdin_base64: "a" })],
    ["stdin_base64", python("1", { stdin_base64: "YQ" })],
    ["stdin_base64", python("1", { stdin_base64: "YQ=\n" })],
    ["stdin_base64", python("1", { stdin_base64: "YR==" })],
    ["stdin_base64", python("1", { stdin_base64: "_-8=" })],
    ["stdin_base64", python("1", { stdin: "a", stdin_base64: "YQ==" })],
    ["env.1A", python("1", { env: { "1A": "x" } })],
    ["env.", python("1", { env: { "": "x" } })],
    ["env.A=B", python("1", { env: { "A=B": "x" } })],
    ["env.A", python("1", { env: { A: "x\0" } })],
    ["env.A", python("1", { env: { A: 1 } })],
    ["env.__proto__", '{"language":"python","code":"1","env":{"__proto__":"x"}}'],
    ["env", python("1", { env: { A: "x".repeat(128 * 1024) } })],
    ["env", python("1", { env: names(1025) })],
    ["labels.-a", python("1", { labels: { "-a": "x" } })],
    ["labels.a", python("1", { labels: { a: "x".repeat(257) } })],
    ["labels", python("1", { labels: names(33) })],
    ["kill_grace_seconds", python("1", { kill_grace_seconds: -1 })],
    ["kill_grace_seconds", python("1", { kill_grace_seconds: 31 })],
    ["kill_grace_seconds", python("1", { kill_grace_seconds: "1" })],
    ["kill_grace_seconds", '{"language":"python","code":"1","kill_grace_seconds":1e999}'],
    ["files", python("1", { files: {} })],
    ["files", files(...Array.from({ length: 1001 }, (_, index) => file(`${index}`)))],
    ["files[0].path", files({ text: "" })],
    ["files[0].path", files(file(""))],
    ["files[0].path", files(file("/etc/passwd"))],
    ["files[0].path", files(file(".."))],
    ["files[0].path", files(file("a/../../b"))],
    ["files[0].path", files(file("./a"))],
    ["files[0].path", files(file("a//b"))],
    ["files[0].path", files(file("a/"))],
    ["files[0].path", files(file("a\0b"))],
    ["files[0].path", files(file("a\ud800"))],
    ["files[0].path", files(file("x".repeat(256)))],
    ["files[0].path", files(file(`${"x".repeat(200)}/`.repeat(21)))],
    ["files[0].path", files(file(`${"x/".repeat(64)}y`))],
    ["files[0].path", files(file("main.py"))],
    ["files[0].path", files(file("main.py/x"))],
    ["files[1].path", files(file("a"), file("a"))],
    ["files[1].path", files(file("a"), file("a/b"))],
    ["files[1].path", files(file("a/b"), file("a"))],
    ["files[0]", files({ path: "a" })],
    ["files[0]", files({ path: "a", text: "", base64: "" })],
    ["files[0].base64", files({ path: "a", base64: "?" })],
    ["files[0].text", files({ path: "a", text: "\udfff" })],
    ["files[0].owner", files(file("a", { owner: "root" }))],
    ["files[0].mode", files(file("a", { mode: 0o1777 }))],
    ["files[0].mode", files(file("a", { mode: -1 }))],
    ["files[0].mode", files(file("a", { mode: 1.5 }))],
    ["files[0].mode", files(file("a", { mode: "4755" }))],
    ["files[0].mode", files(file("a", { mode: "rwx" }))],
    ["files", python("1", { limits: { disk_mb: 1 }, files: [big("a"), big("b")] })],
    ["files[0]", python("1", { limits: { file_mb: 1 }, files: [big("a", 1.1)] })],
  ])("%s", async (field, body) => {
    const answer = await post(body);
    expect([answer.status, answer.json.field]).toEqual([400, field]);
    expect(answer.json).toMatchObject({ code: "invalid_argument", title: "Bad Request" });
    expect(answer.json.detail).toStartWith("Cannot ");
    expect(answer.json.detail.length).toBeLessThan(400);
    expect(answer.headers.get("content-type")).toBe("application/problem+json");
  });

  test.each(
    ["wall_seconds", "mem_mb", "pids", "cpu_cores"].flatMap((name) =>
      ["0", "-1", "1e999", "-1e999", '"x"', "null", "true", "[]", "{}"].map((value) => [
        name,
        value,
      ]),
    ),
  )("limits.%s of %s", async (name, value) => {
    const answer = await post(`{"language":"python","code":"1","limits":{"${name}":${value}}}`);
    expect([answer.status, answer.json.field]).toEqual([400, `limits.${name}`]);
  });

  test.each([
    ["limits.colour", '{"colour":1}'],
    ["limits.__proto__", '{"__proto__":1}'],
    ["limits.pids", '{"pids":1.5}'],
    ["limits.disk_mb", '{"disk_mb":64,"mem_mb":32}'],
    ["limits", "null"],
    ["limits", "[]"],
    ["limits", '"x"'],
  ])("%s as in %s", async (field, limits) => {
    const answer = await post(`{"language":"python","code":"1","limits":${limits}}`);
    expect([answer.status, answer.json.field]).toEqual([400, field]);
  });

  test.each<[string, string | Uint8Array]>([
    ["invalid UTF-8", Buffer.from('{"language":"python","code":"\xff"}', "latin1")],
    ["a surrogate in UTF-8", Buffer.from('{"language":"python","code":"\xed\xa0\x80"}', "latin1")],
    ["half a document", '{"language":"python"'],
    ["nothing", ""],
    ["NaN", '{"kill_grace_seconds":NaN}'],
    ["deep nesting", `${"[".repeat(1e6)}`],
    ["deep nesting with strings between", `${'["]",'.repeat(1e4)}`],
    ["a million values", `{"args":[${"1,".repeat(1e6)}1]}`],
    ["a million empty objects", `{"files":[${"{},".repeat(1e6)}{}]}`],
  ])("a body of %s", async (_, body) => {
    expect(await post(body)).toMatchObject({ status: 400, json: { field: "body" } });
  });

  test("a body that is no JSON by its headers", async () => {
    for (const headers of [
      { "Content-Type": "text/plain" },
      { "Content-Type": "application/x-www-form-urlencoded" },
      { "Content-Encoding": "gzip" },
    ]) {
      expect(await post(python("1"), { headers })).toMatchObject({
        status: 415,
        json: { reason: "UNSUPPORTED_MEDIA_TYPE" },
      });
    }
  });

  test("a body above the bound, with and without its length", async () => {
    const body = `{"code":"${"x".repeat(BODY_BYTES_MAX)}"}`;
    const { app } = await useApp();
    const headers = { Authorization: `Bearer ${KEY_A}`, "Content-Type": "application/json" };
    for (const more of [{ "Content-Length": String(body.length) }, {}]) {
      const init = { method: "POST", body, headers: { ...headers, ...more } };
      const answer = await app.request("/v1/jobs", init);
      expect(answer.status).toBe(413);
      expect(await answer.json()).toMatchObject({ reason: "BODY_TOO_LARGE" });
    }
  });

  test("ten megabytes of code, and takes what is within the bound", async () => {
    const large = await post(python("#".repeat(10 * 1024 * 1024)));
    expect(large).toMatchObject({ status: 400, json: { field: "code" } });
    const most = await post(python("é".repeat(CODE_BYTES_MAX / 2)));
    expect(most.status).toBe(201);
  });
});

describe("queries are refused", () => {
  const id = "01a22e2f-8f7c-75cc-9929-2b69fe971460";
  test.each([
    ["limit", "/v1/jobs?limit=0"],
    ["limit", "/v1/jobs?limit=501"],
    ["limit", "/v1/jobs?limit=-1"],
    ["limit", "/v1/jobs?limit=1e2"],
    ["limit", "/v1/jobs?limit=x"],
    ["limit", "/v1/jobs?limit="],
    ["limit", "/v1/jobs?limit=1&limit=2"],
    ["cursor", "/v1/jobs?cursor=x"],
    ["status", "/v1/jobs?status=done"],
    ["page", "/v1/jobs?page=2"],
    ["key", `/v1/jobs?key=${KEY_A}`],
    ["wait_seconds", `/v1/jobs/${id}/result?wait_seconds=301`],
    ["wait_seconds", `/v1/jobs/${id}/result?wait_seconds=-1`],
    ["wait_seconds", `/v1/jobs/${id}/result?wait_seconds=1e999`],
    ["wait_seconds", `/v1/jobs/${id}/result?wait_seconds=null`],
    ["wait", `/v1/jobs/${id}/result?wait=1`],
    ["from_seq", "REPLAY?from_seq=0"],
    ["from_seq", "REPLAY?from_seq=1.5"],
    ["from_seq", "REPLAY?from_seq=9007199254740993"],
    ["format", "REPLAY?format=xml"],
  ])("%s in %s", async (field, path) => {
    const { json } = await post(python("1"));
    const answer = await ask(path.replace("REPLAY", `/v1/jobs/${json.job_id}/replay`));
    expect([answer.status, answer.json.field]).toEqual([400, field]);
  });
});

function names(count: number): Record<string, string> {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`N${index}`, "x"]));
}

function big(path: string, mib = 0.6) {
  return { path, base64: Buffer.alloc(mib * 1024 * 1024).toString("base64") };
}
