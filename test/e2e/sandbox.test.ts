// `cprg sandbox` of the compiled binary against its own server; shells on a real terminal.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  chmodSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { requireHost } from "../helpers/host.ts";
import { call, cprgPath, type Home, makeHome } from "./cprg.ts";
import { type Serving, serve } from "./server.ts";

const host = requireHost({ root: true, cgroup: true, programs: ["bash", "vi", "top"] });
const FIXTURE = join(import.meta.dir, "../fixtures/terminal.py");

type Step = { until: string } | { type: string } | { resize: [number, number] };

host.describe("cprg sandbox", () => {
  let home: Home;
  let server: Serving;
  beforeAll(async () => {
    home = makeHome();
    server = await serve(home);
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    home[Symbol.dispose]();
  });

  const env = (): Record<string, string> => ({
    ...home.env,
    CPRG_SERVER: server.url,
    CPRG_KEY: server.key,
  });
  const cprg = (words: readonly string[], stdin?: string) =>
    call(["sandbox", ...words], {
      env: env(),
      cwd: home.path,
      ...(stdin === undefined ? {} : { stdin }),
    });
  const create = async (...words: string[]): Promise<string> => {
    const { code, out, err } = await cprg(["create", ...words]);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    return out.trim();
  };
  const onTerminal = async (words: readonly string[], steps: readonly Step[]) => {
    const child = Bun.spawn(["/usr/bin/python3", FIXTURE], {
      stdin: Buffer.from(
        JSON.stringify({
          argv: [cprgPath(), "sandbox", ...words],
          env: { ...env(), TERM: "xterm-256color" },
          size: [24, 80],
          steps,
        }),
      ),
      stderr: "pipe",
    });
    const [text, problem] = await Promise.all([child.stdout.text(), child.stderr.text()]);
    expect(problem).toBe("");
    const { code, output, restored } = JSON.parse(text);
    return { code, restored, output: Buffer.from(output, "base64").toString() };
  };

  test("opens, lists, runs in and ends a sandbox", async () => {
    const id = await create(
      "--idle",
      "60",
      "--limit",
      "mem_mb=128",
      "--label",
      "team=blue",
      "--env",
      "A=1",
    );
    const listed = await cprg(["list", "--json"]);
    expect(JSON.parse(listed.out).sandboxes).toMatchObject([
      { sandbox_id: id, idle_seconds: 60, labels: { team: "blue" } },
    ]);
    expect((await cprg(["list"])).out).toContain("128 MiB");
    const ran = await cprg([
      "exec",
      id,
      "--",
      "sh",
      "-c",
      "echo $A$B; echo err >&2; exit 7",
      "-e",
      "x",
    ]);
    expect(ran).toEqual({ code: 7, out: "1\n", err: "err\n" });
    const more = await cprg(
      ["exec", "-e", "B=é", "--stdin", id, "--", "sh", "-c", "cat; echo $B"],
      "in\n",
    );
    expect(more).toEqual({ code: 0, out: "in\né\n", err: "" });
    expect((await cprg(["exec", id, "--", "sh", "-c", "kill -9 $$"])).code).toBe(137);
    expect((await cprg(["exec", id, "--", "/none"])).code).toBe(125);
    expect((await cprg(["rm", id])).out).toBe(`${id} ended\n`);
    expect((await cprg(["rm", id])).code).toBe(1);
    expect((await cprg(["exec", id, "--", "true"])).err).toContain("it has ended");
  });

  test("refuses wrong words with 2", async () => {
    for (const words of [
      [],
      ["nope"],
      ["rm", "x"],
      ["cp", "a", "b"],
      ["exec"],
      ["list", "more"],
      ["shell"],
    ]) {
      expect((await cprg(words)).code).toBe(2);
    }
  });

  test("copies files and trees both ways with modes and links", async () => {
    const id = await create();
    const tree = join(home.path, "tree");
    mkdirSync(join(tree, "d"), { recursive: true });
    writeFileSync(join(tree, "d/f"), "bytes\0\xff", "latin1");
    chmodSync(join(tree, "d/f"), 0o751);
    symlinkSync("d/f", join(tree, "l"));
    expect(await cprg(["cp", "tree", `${id}:t`])).toEqual({ code: 0, out: "", err: "" });
    expect(await cprg(["cp", "tree/d/f", `${id}:/tmp/`])).toEqual({ code: 0, out: "", err: "" });
    const seen = await cprg([
      "exec",
      id,
      "--",
      "sh",
      "-c",
      "stat -c %a t/d/f /tmp/f; readlink t/l",
    ]);
    expect(seen.out).toBe("751\n751\nd/f\n");
    expect((await cprg(["cp", `${id}:t`, "back"])).err).toBe("");
    expect(readFileSync(join(home.path, "back/d/f"), "latin1")).toBe("bytes\0\xff");
    expect(statSync(join(home.path, "back/d/f")).mode & 0o777).toBe(0o751);
    expect(readlinkSync(join(home.path, "back/l"))).toBe("d/f");
    expect((await cprg(["cp", `${id}:/tmp/f`, "single"])).err).toBe("");
    expect(readFileSync(join(home.path, "single"), "latin1")).toBe("bytes\0\xff");
    await cprg(["exec", id, "--", "ln", "-s", "/etc/shadow", "t/out"]);
    const refused = await cprg(["cp", `${id}:t`, "evil"]);
    expect(refused.code).not.toBe(0);
    expect(refused.err).toContain("leads out");
    expect((await cprg(["cp", `${id}:none`, "none"])).code).toBe(1);
    await cprg(["rm", id]);
  });

  test("gives a shell the terminal: size, keys, Ctrl-C, UTF-8, its exit code, and back", async () => {
    const { code, output, restored } = await onTerminal(
      ["shell", "--env", "PS1=> "],
      [
        { until: "> " },
        { type: "stty size\r" },
        { until: "24 80" },
        { until: "> " },
        { resize: [31, 101] },
        { type: "sh -c 'echo slee''ping; exec sleep 100'\r" },
        { until: "sleeping\r\n" },
        { type: "\x03" },
        { until: "> " },
        { type: "echo code $?; stty size; echo grüße 🌍 | cat\r" },
        { until: "code 130" },
        { until: "31 101" },
        { until: "grüße 🌍\r\n" },
        { until: "> " },
        { type: "sh -c 'echo rea''ding; exec cat'\r" },
        // What is typed before it reads is typed to the shell's editor, which takes keys as they are.
        { until: "reading\r\n" },
        { type: "typed\r" },
        { until: "typed\r\ntyped\r\n" },
        { type: "\x04" },
        { until: "> " },
        { type: "exit 9\r" },
      ],
    );
    expect([code, restored]).toEqual([9, true]);
    expect(output).not.toContain("cannot set terminal process group");
    // The one that it had opened for itself is gone.
    expect(JSON.parse((await cprg(["list", "--json"])).out).sandboxes).toEqual([]);
  });

  test("runs an editor and top", async () => {
    const id = await create();
    const { code, restored } = await onTerminal(
      ["shell", id],
      [
        { until: "$ " },
        { type: "vi -u NONE note\r" },
        { until: "~" },
        { type: "ihällo\x1b:wq\r" },
        { until: "written" },
        { until: "$ " },
        { type: "top -d 0.5\r" },
        { until: "Tasks:" },
        { until: "bash" },
        { type: "q" },
        { until: "$ " },
        { type: "exit\r" },
      ],
    );
    expect([code, restored]).toEqual([0, true]);
    expect((await cprg(["exec", id, "--", "cat", "note"])).out).toBe("hällo\n");
    await cprg(["rm", id]);
  });

  test("gives the terminal back when its sandbox ends beneath it", async () => {
    const id = await create("--lifetime", "2");
    const { code, output, restored } = await onTerminal(["shell", id], [{ until: "$ " }]);
    expect(restored).toBe(true);
    expect(code).toBe(1);
    expect(output).toContain("lifetime");
  });
});

describe("a server that stops", () => {
  host.test(
    "ends sandboxes with shutdown; one that was killed finds them interrupted",
    async () => {
      using home = makeHome();
      const first = await serve(home);
      const open = async (one: Serving): Promise<{ sandbox: string; exec: string }> => {
        const made = await one.request("/v1/sandboxes", { method: "POST", body: "{}" });
        const { sandbox_id } = (await made.json()) as { sandbox_id: string };
        const started = await one.request(`/v1/sandboxes/${sandbox_id}/execs?wait_seconds=0`, {
          method: "POST",
          body: JSON.stringify({ argv: ["sleep", "100"] }),
        });
        const { exec_id } = (await started.json()) as { exec_id: string };
        return { sandbox: sandbox_id, exec: exec_id };
      };
      const look = async (one: Serving, { sandbox, exec }: { sandbox: string; exec: string }) => {
        const get = async (path: string) =>
          (await (await one.request(path)).json()) as { reason: string };
        return [
          (await get(`/v1/sandboxes/${sandbox}`)).reason,
          (await get(`/v1/execs/${exec}`)).reason,
        ];
      };
      const before = await open(first);
      expect(await first.stop()).toBe(0);
      const second = await serve(home);
      expect(await look(second, before)).toEqual(["shutdown", "shutdown"]);
      const killed = await open(second);
      await second.stop("SIGKILL");
      await using third = await serve(home);
      expect(await look(third, killed)).toEqual(["interrupted", "interrupted"]);
    },
  );
});
