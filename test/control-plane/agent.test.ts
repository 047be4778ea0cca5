// An agent over a real worker in another process, with a model's server that misbehaves in every way.

import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { RunnerContext } from "../../src/control-plane/contract.ts";
import {
  type AgentOptions,
  agentRunner,
  BAD_ANSWERS_MAX,
  checkAgentInput,
} from "../../src/control-plane/runners/agent.ts";
import { MODEL_ANSWER_BYTES_MAX } from "../../src/control-plane/runners/agent-model.ts";
import { STEP_CALLS_MAX } from "../../src/control-plane/runners/agent-tools.ts";
import { workerSandboxProvider } from "../../src/control-plane/worker-provider.ts";
import { CprgError } from "../../src/core/errors.ts";
import type { Json } from "../../src/core/task.ts";
import type { SandboxLease } from "../../src/provider/contract.ts";
import {
  calls,
  failure,
  MODEL_KEY,
  type ModelServer,
  says,
  startModelServer,
} from "../helpers/model-server.ts";
import {
  type Plane,
  startPlane,
  startWorkerProcess,
  type WorkerProcess,
} from "../worker/process.ts";

let plane: Plane;
let worker: WorkerProcess;
let lease: SandboxLease;

beforeAll(async () => {
  plane = await startPlane();
  worker = startWorkerProcess(plane.port);
  const provider = workerSandboxProvider(plane.registry);
  lease = await provider.acquire({
    repository: "/",
    directory: "/",
    gitDirectories: [],
    variables: {},
  });
});

afterAll(async () => {
  await lease.release();
  worker.kill("SIGTERM");
  await worker.exited;
  await worker.end();
  await plane.close();
});

interface Ran {
  readonly result: unknown;
  readonly error: CprgError | null;
  readonly notes: readonly string[];
}

async function run(
  server: Pick<ModelServer, "url">,
  options: AgentOptions & { readonly input?: Json; readonly signal?: AbortSignal } = {},
): Promise<Ran> {
  const { input = "do it", signal = new AbortController().signal, ...rest } = options;
  const notes: string[] = [];
  const context = {
    lease,
    signal,
    note: async (text: string) => {
      notes.push(text);
    },
  } as unknown as RunnerContext;
  const access = { baseUrl: server.url, apiKey: MODEL_KEY };
  const runner = agentRunner("openai:test-model", { ...access, ...rest });
  try {
    return { result: await runner(input, context), error: null, notes };
  } catch (thrown) {
    if (!CprgError.is(thrown)) throw thrown;
    return { result: null, error: thrown, notes };
  }
}

/** The last message of a request: what the tools answered. */
function lastMessage(server: ModelServer, index: number): string {
  return JSON.stringify(server.requests[index]?.body.messages.at(-1)?.content);
}

test("a model works through write, exec, edit and read to its end", async () => {
  await using server = startModelServer((_, index) => {
    if (index === 0) return calls("write", { path: "deep/er/hello.sh", content: "echo one\n" });
    if (index === 1) return calls("exec", { command: "sh deep/er/hello.sh; echo bad >&2; exit 3" });
    if (index === 2) return calls("edit", { path: "deep/er/hello.sh", old: "one", new: "two" });
    if (index === 3) return calls("read", { path: "deep/er/hello.sh" });
    return says("it is done");
  });
  const ran = await run(server);
  expect(ran.error).toBeNull();
  expect(ran.result).toEqual({ text: "it is done", steps: 5, tokens: 50 });
  expect(readFileSync(join(lease.root, "deep/er/hello.sh"), "utf8")).toBe("echo two\n");
  expect(lastMessage(server, 2)).toContain("status 3\\nstdout:\\none\\n\\nstderr:\\nbad");
  expect(lastMessage(server, 4)).toContain("echo two");
  expect(ran.notes).toHaveLength(5);
  expect(ran.notes[1]).toBe(
    'step 2: exec {"command":"sh deep/er/hello.sh; echo bad >&2; exit 3"}: status 3',
  );
  const tools = server.requests[0]?.body.tools?.map((tool) => tool.function.name);
  expect(tools).toEqual(["exec", "read", "write", "edit"]);
});

test("a server that is named as compatible is asked the same way", async () => {
  await using server = startModelServer((_, index) =>
    index === 0 ? calls("exec", { command: "echo here" }) : says("done"),
  );
  const notes: string[] = [];
  const note = async (text: string) => void notes.push(text);
  const runner = agentRunner("compatible:any-model", { baseUrl: server.url, apiKey: MODEL_KEY });
  const { signal } = new AbortController();
  const context = { lease, signal, note } as unknown as RunnerContext;
  expect(await runner("go", context)).toMatchObject({ text: "done", steps: 2 });
  expect(server.requests[1]?.body.model).toBe("any-model");
  expect(lastMessage(server, 1)).toContain("here");
});

test("calls of one answer run in their order, and no more than so many", async () => {
  rmSync(join(lease.root, "order"), { force: true });
  await using server = startModelServer((_, index) => {
    if (index > 0) return says("done");
    const slow = { name: "exec", input: { command: "sleep 0.2; echo 0 >> order" } };
    const quick = Array.from({ length: STEP_CALLS_MAX + 2 }, (_, at) => ({
      name: "exec",
      input: { command: `echo ${at + 1} >> order` },
    }));
    return { calls: [slow, ...quick] };
  });
  expect((await run(server)).error).toBeNull();
  const lines = readFileSync(join(lease.root, "order"), "utf8").trim().split("\n");
  expect(lines).toEqual(Array.from({ length: STEP_CALLS_MAX }, (_, at) => String(at)));
  expect(lastMessage(server, 1)).toContain(`more than ${STEP_CALLS_MAX} calls`);
});

test("the key is in no environment, argument or file of the worker, and in no note", async () => {
  await using server = startModelServer((_, index) =>
    index === 0
      ? calls("exec", { command: "env; cat /proc/self/cmdline /proc/$PPID/environ; ls -R ." })
      : says("done"),
  );
  const ran = await run(server);
  expect(ran.error).toBeNull();
  expect(server.requests[1]?.authorization).toBe(`Bearer ${MODEL_KEY}`);
  expect(JSON.stringify(server.requests[1]?.body)).not.toContain(MODEL_KEY);
  expect(ran.notes.join("\n")).not.toContain(MODEL_KEY);
});

test("a bad key ends the task at once, and is not shown", async () => {
  await using server = startModelServer(() => says("never"));
  const bad = "sk-wrong-0123456789abcdef";
  const { error, notes } = await run(server, { apiKey: bad });
  expect(error?.code).toBe("unauthenticated");
  expect(error?.message).toBe("The model's server refused the key (HTTP 401)");
  expect(JSON.stringify([error?.message, error?.hint, notes])).not.toContain(bad);
  expect(server.requests).toHaveLength(1);
});

test("a rate limit is waited for as long as the server says, and so often", async () => {
  const asked: number[] = [];
  await using server = startModelServer((_, index) => {
    asked.push(performance.now());
    if (index === 0) return failure(429, "slow down", { "retry-after": "1" });
    if (index === 1) return failure(503, "busy", { "retry-after-ms": "20" });
    return says("done");
  });
  const ran = await run(server);
  expect(ran.error).toBeNull();
  const [first = 0, second = 0, third = 0] = asked;
  expect(second - first).toBeGreaterThanOrEqual(990);
  expect(third - second).toBeLessThan(900);
  expect(ran.notes[0]).toContain("asked too often (HTTP 429): slow down; again in 1.0 s");
  await using always = startModelServer(() => failure(429, "no", { "retry-after-ms": "1" }));
  const { error } = await run(always, { budget: { retries: 2 } });
  expect(error?.code).toBe("resource_exhausted");
  expect(error?.message).toContain("HTTP 429");
  expect(always.requests).toHaveLength(3);
});

test("a wait that is longer than the time that is left ends with the time", async () => {
  await using server = startModelServer(() => failure(429, "later", { "retry-after": "3600" }));
  const startedAt = performance.now();
  const { error } = await run(server, { budget: { wallSeconds: 1 } });
  expect([error?.code, error?.reason]).toEqual(["deadline_exceeded", "wall_limit"]);
  expect(error?.message).toContain("wall_seconds 1");
  expect(performance.now() - startedAt).toBeLessThan(10_000);
  expect(server.requests).toHaveLength(1);
});

test("a request that is refused is not repeated", async () => {
  await using server = startModelServer(() => failure(400, `no such model, key ${MODEL_KEY}`));
  const { error } = await run(server);
  expect(error?.message).toBe(
    "The model's server refused the request (HTTP 400): no such model, key [key]",
  );
  expect(server.requests).toHaveLength(1);
});

test("a server that is not there ends the task after its retries", async () => {
  const server = startModelServer(() => says("never"));
  await server[Symbol.asyncDispose]();
  const { error, notes } = await run(server, { budget: { retries: 1 } });
  expect(error?.code).toBe("unavailable");
  expect(error?.message).toContain("cannot be reached");
  expect(notes).toHaveLength(1);
});

test("a model that never stops ends at its steps, and at its tokens", async () => {
  await using server = startModelServer(() => calls("exec", { command: "true" }));
  const steps = await run(server, { budget: { steps: 3 } });
  expect(steps.error?.code).toBe("resource_exhausted");
  expect(steps.error?.message).toContain("steps 3");
  expect(server.requests).toHaveLength(3);
  const tokens = await run(server, { input: { prompt: "x", budget: { tokens: 25 } } });
  expect(tokens.error?.message).toContain("tokens 25");
  expect(server.requests).toHaveLength(6);
  expect(server.requests[5]?.body.max_tokens).toBe(5);
});

test("tokens of a server that counts none are estimated", async () => {
  await using server = startModelServer(() => ({
    calls: [{ name: "exec", input: { command: `echo ${"x".repeat(4000)}` } }],
    tokens: null,
  }));
  const { error } = await run(server, { budget: { tokens: 5000, steps: 100 } });
  expect(error?.message).toContain("tokens 5000");
  expect(server.requests.length).toBeLessThan(6);
});

test("a program that never ends is killed with the task's time", async () => {
  await using server = startModelServer(() =>
    calls("exec", { command: "echo $$ > pid; exec sleep 1000", timeout_seconds: 1000 }),
  );
  const { error } = await run(server, { budget: { wallSeconds: 1 } });
  expect(error?.reason).toBe("wall_limit");
  const pid = readFileSync(join(lease.root, "pid"), "utf8").trim();
  expect(existsSync(`/proc/${pid}`)).toBe(false);
});

test("a program's own time is bounded, and the model hears of it", async () => {
  await using server = startModelServer((_, index) =>
    index === 0 ? calls("exec", { command: "sleep 1000", timeout_seconds: 0.2 }) : says("done"),
  );
  expect((await run(server)).error).toBeNull();
  expect(lastMessage(server, 1)).toContain("took longer than 200 ms");
});

test("malformed calls are told to the model, which may do better", async () => {
  await using server = startModelServer((_, index) => {
    if (index === 0) return calls("exec", "{not json");
    if (index === 1) return calls("rm_rf", { path: "/" });
    if (index === 2) return calls("exec", { command: "echo fine" });
    return says("done");
  });
  const ran = await run(server);
  expect(ran.error).toBeNull();
  expect(ran.result).toMatchObject({ steps: 4 });
  expect(lastMessage(server, 2)).toContain("rm_rf");
  expect(lastMessage(server, 3)).toContain("fine");
});

test("a model that makes nothing but malformed calls is given up", async () => {
  await using server = startModelServer(() => calls("exec", { comand: "typo" }));
  const { error } = await run(server);
  expect(error?.reason).toBe("MODEL_CALLS_MALFORMED");
  expect(server.requests).toHaveLength(BAD_ANSWERS_MAX);
});

test("answers that are none end with an error that says so", async () => {
  await using html = startModelServer(() => new Response("<html>hello</html>"));
  const none = await run(html, { budget: { retries: 0 } });
  expect(none.error?.code).toBe("unavailable");
  expect(none.error?.message).toContain("gave an answer that is none");
  await using cut = startModelServer(() => ({ text: "half", finish: "length" }));
  expect((await run(cut)).error?.message).toContain("its last answer is longer than");
  await using filtered = startModelServer(() => ({ text: "", finish: "content_filter" }));
  expect((await run(filtered)).error?.message).toContain("held its answer back");
});

test("an answer without end is cut off", async () => {
  let sent = 0;
  await using server = startModelServer(() => {
    const piece = new Uint8Array(64 * 1024).fill(32);
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        sent += piece.length;
        controller.enqueue(piece);
      },
    });
    return new Response(body, { headers: { "content-type": "application/json" } });
  });
  const { error } = await run(server, { budget: { retries: 0 } });
  expect(error?.reason).toBe("MODEL_ANSWER_TOO_LARGE");
  expect(sent).toBeLessThan(MODEL_ANSWER_BYTES_MAX * 4);
});

test("a redirect is not followed: it could take the key elsewhere", async () => {
  await using other = startModelServer(() => says("stolen"));
  await using server = startModelServer(() =>
    Response.redirect(`${other.url}/chat/completions`, 307),
  );
  expect((await run(server, { budget: { retries: 0 } })).error).not.toBeNull();
  expect(other.requests).toHaveLength(0);
});

test("a task that is cancelled ends with why it was, also in the middle of a wait", async () => {
  const why = new CprgError("canceled", "cancelled by its owner");
  for (const answer of [
    () => new Promise<Response>(() => undefined),
    () => failure(429, "later", { "retry-after": "3600" }),
    () => calls("exec", { command: "sleep 1000" }),
  ]) {
    const controller = new AbortController();
    await using server = startModelServer(() => {
      setTimeout(() => controller.abort(why), 100);
      return answer();
    });
    expect((await run(server, { signal: controller.signal })).error).toBe(why);
  }
});

test("what a tool gives is cut to what the model may see", async () => {
  writeFileSync(join(lease.root, "big"), `${"a".repeat(3000)}THE END`);
  await using server = startModelServer((_, index) => {
    if (index === 0) return calls("exec", { command: "cat big; cat big >&2" });
    if (index === 1) return calls("read", { path: "big" });
    if (index === 2) return calls("read", { path: "big", offset: 3000 });
    return says("done");
  });
  expect((await run(server, { budget: { toolOutputBytes: 1000 } })).error).toBeNull();
  const [exec, start, end] = [1, 2, 3].map((index) => lastMessage(server, index));
  expect(exec?.length).toBeLessThan(1300);
  expect(exec?.split("THE END")).toHaveLength(3);
  expect(exec).toContain("[cut: the last 500 bytes]");
  expect(start?.length).toBeLessThan(1300);
  expect(start).toContain("[cut: go on with offset 1000]");
  expect(end).toContain("THE END");
});

test("files that cannot be edited are refused, and stay as they are", async () => {
  mkdirSync(join(lease.root, "files"), { recursive: true });
  const files = {
    twice: "aa aa",
    binary: new Uint8Array([0xff, 0xfe, 0x61]),
    huge: "x".repeat(1024 * 1024 + 1),
  };
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(join(lease.root, "files", name), content);
  }
  await using server = startModelServer((_, index) => {
    const edits = [
      { path: "files/twice", old: "aa", new: "b" },
      { path: "files/twice", old: "zz", new: "b" },
      { path: "files/binary", old: "a", new: "b" },
      { path: "files/huge", old: "x", new: "b" },
      { path: "files/none", old: "x", new: "b" },
    ];
    const edit = edits[index];
    return edit === undefined ? says("done") : calls("edit", edit);
  });
  expect((await run(server)).error).toBeNull();
  const answers = [1, 2, 3, 4, 5].map((index) => lastMessage(server, index));
  const told = ["more than once", "does not occur", "no UTF-8", "more than 1048576", "Cannot read"];
  for (const [index, text] of told.entries()) expect(answers[index]).toContain(text);
  for (const [name, content] of Object.entries(files)) {
    const kept = readFileSync(join(lease.root, "files", name));
    expect(kept.equals(Buffer.from(content as string))).toBe(true);
  }
});

test("an edit keeps a byte order mark, line ends and the mode", async () => {
  const path = join(lease.root, "marked");
  writeFileSync(path, "\ufeffone\r\ntwo\r\n", { mode: 0o755 });
  await using server = startModelServer((_, index) =>
    index === 0 ? calls("edit", { path: "marked", old: "two", new: "$& three" }) : says("done"),
  );
  expect((await run(server)).error).toBeNull();
  expect(readFileSync(path, "utf8")).toBe("\ufeffone\r\n$& three\r\n");
  expect(statSync(path).mode & 0o777).toBe(0o755);
});

test("a task may ask for less than its runner allows, and for nothing odd", async () => {
  await using server = startModelServer(() => calls("exec", { command: "true" }));
  const more = { prompt: "x", budget: { steps: 900 } };
  const capped = await run(server, { budget: { steps: 2 }, input: more });
  expect(capped.error?.message).toContain("steps 2");
  const refused = async (input: Json) => (await run(server, { input })).error?.field;
  expect(await refused({ prompt: "x", budget: { stepz: 1 } })).toBe("input.budget.stepz");
  expect(await refused({ prompt: "x", budget: { steps: 0 } })).toBe("input.budget.steps");
  expect(await refused({ prompt: "x", budget: [] })).toBe("input.budget");
  expect(await refused({ prompt: "x", other: 1 })).toBe("input.other");
  expect(await refused("  ")).toBe("input.prompt");
  expect(await refused(null)).toBe("input.prompt");
  expect(server.requests).toHaveLength(2);
  expect(() => checkAgentInput({ prompt: "x", budget: { steps: 900 } })).not.toThrow();
  expect(() => checkAgentInput({ prompt: "x", budget: { steps: 0 } })).toThrow("budget.steps");
  expect(() => checkAgentInput(1)).toThrow("no prompt");
});

test("a model that cannot be reached is refused before any task", () => {
  const field = (make: () => unknown): string | undefined => {
    try {
      make();
    } catch (error) {
      return CprgError.from(error).field;
    }
    return "none";
  };
  expect(field(() => agentRunner("gpt-5", { apiKey: "k" }))).toBe("model");
  expect(field(() => agentRunner("openai:", { apiKey: "k" }))).toBe("model");
  expect(field(() => agentRunner("openai:gpt-5"))).toBe("apiKey");
  expect(field(() => agentRunner("compatible:x"))).toBe("baseUrl");
  expect(field(() => agentRunner("compatible:x", { baseUrl: "file:///etc/passwd" }))).toBe(
    "baseUrl",
  );
  expect(field(() => agentRunner("compatible:x", { baseUrl: "http://u:p@h/v1" }))).toBe("baseUrl");
  const budget = { steps: 1001 };
  expect(field(() => agentRunner("openai:x", { apiKey: "k", budget }))).toBe("steps");
});
