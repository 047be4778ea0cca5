// Sandboxes and jobs on a worker that has sandboxes of its own: limits hold there, and are said.

import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import type { EventRow } from "../../src/core/event.ts";
import { TOKEN } from "../control-plane/ground.ts";
import { requireHost } from "../helpers/host.ts";
import { python } from "./fixture.ts";
import { pause, usePlaced } from "./placed-ground.ts";

const ANY = { placement: { labels: {} } };

requireHost({ sandbox: true, root: true }).describe("a worker with sandboxes", () => {
  setDefaultTimeout(60_000);
  let used: Awaited<ReturnType<typeof usePlaced>>;

  beforeAll(async () => {
    used = await usePlaced({ app: { sandboxes: { admissionWaitMs: 20_000 } } });
    await used.ground.process(["--token", TOKEN, "--slots", "2"], {
      isIsolated: true,
      env: { CPRG_CEILINGS: "mem_mb=300" },
    });
  });

  afterAll(async () => {
    expect(used.ground.plane.workers().flatMap((one) => one.claims)).toEqual([]);
    await used[Symbol.asyncDispose]();
  });

  const end = async (id: string) => await used.ask(`/v1/sandboxes/${id}`, { method: "DELETE" });

  test("a sandbox has the limits that it asks for, and says which layers are in force", async () => {
    const limits = { mem_mb: 64, disk_mb: 16, pids: 16, cpu_cores: 0.5 };
    const { sandbox_id: id, limits: effective } = await used.open({ limits });
    expect(effective).toMatchObject(limits);
    const eats = 'python3 -c "x = bytearray(200 * 1024 * 1024)"';
    const oom = await used.sh(id, `exec ${eats}`);
    expect(oom).toMatchObject({ status: "oom_killed", reason: "oom" });
    expect(oom.limits_hit).toMatchObject([{ limit: "mem_mb", value: 64 }]);
    const busy = await used.sh(id, "while :; do :; done", { limits: { cpu_seconds: 0.3 } });
    expect(busy).toMatchObject({ status: "timed_out", reason: "cpu_limit" });
    expect(busy.limits_hit).toMatchObject([{ limit: "cpu_seconds", value: 0.3 }]);
    const full = await used.sh(id, "head -c 40000000 /dev/zero > big; echo $?; rm big");
    expect(full.stdout).not.toBe("0\n");
    const { events } = (await used.ask(`/v1/execs/${full.exec_id}/replay`)).json;
    expect((events as EventRow[])[0]?.data).toMatchObject({
      layers: { namespaces: true, seccomp: expect.anything() },
      missing: [],
    });
    const who = await used.sh(
      id,
      "pwd; echo $HOME; cat /etc/hostname 2>/dev/null; ls /proc | wc -l",
    );
    expect(who.stdout).toStartWith("/workspace\n/home/agent\n");
    await end(id);
  });

  test("without limits of its own it has the defaults, and the worker's ceilings hold", async () => {
    const plain = await used.open();
    expect(plain.limits).toMatchObject({ mem_mb: 256, pids: 64, wall_seconds: 30 });
    await end(plain.sandbox_id);
    const large = await used.open({ limits: { mem_mb: 4096 } });
    expect(large.limits.mem_mb).toBe(300);
    await end(large.sandbox_id);
  });

  test("files keep their modes, and programs of one exec see those of another", async () => {
    const { sandbox_id: id } = await used.open();
    await used.sh(id, "echo '#!/bin/sh\necho ran' > run.sh; chmod 755 run.sh");
    expect((await used.sh(id, "./run.sh")).stdout).toBe("ran\n");
    const got = await used.ask(`/v1/sandboxes/${id}/files/run.sh`);
    expect(got.text).toBe("#!/bin/sh\necho ran\n");
    await end(id);
  });

  test("a job runs in a sandbox of its own, with exact limits and one end", async () => {
    const code = "import sys; print(sys.argv[1], open('f').read(), sys.stdin.read())";
    const body = python(code, {
      ...ANY,
      args: ["arg"],
      stdin: "in",
      files: [{ path: "f", text: "file" }],
    });
    const { json } = await used.ask("/v1/jobs", { body });
    const result = await used.ask(`/v1/jobs/${json.job_id}/result?wait_seconds=30`);
    expect(result.json).toMatchObject({ status: "succeeded", stdout: "arg file in\n" });
    const { events } = (await used.ask(`/v1/jobs/${json.job_id}/replay`)).json;
    expect((events as EventRow[])[1]).toMatchObject({
      kind: "started",
      data: { interpreter: expect.stringContaining("python 3"), limits: { mem_mb: 256 } },
    });
    const late = await used.ask("/v1/jobs", {
      body: { argv: ["sleep", "600"], limits: { wall_seconds: 0.3 }, ...ANY },
    });
    const ended = await used.ask(`/v1/jobs/${late.json.job_id}/result?wait_seconds=30`);
    expect(ended.json).toMatchObject({ status: "timed_out", reason: "wall_limit" });
    expect(ended.json.limits_hit).toMatchObject([{ limit: "wall_seconds", value: 0.3 }]);
  });

  test("a job that is cancelled leaves nothing on the worker", async () => {
    const word = `word-${Math.random().toString(36).slice(2)}`;
    const argv = ["sh", "-c", `echo up; sleep 600; : ${word}`];
    const { json } = await used.ask("/v1/jobs", { body: { argv, ...ANY } });
    while (!(await used.ask(`/v1/jobs/${json.job_id}/replay`)).text.includes("up\\n"))
      await pause();
    expect(processesWith(word)).not.toBe(0);
    const ended = await used.ask(`/v1/jobs/${json.job_id}`, { method: "DELETE" });
    expect(ended.json).toMatchObject({ status: "cancelled", reason: "user" });
    expect(processesWith(word)).toBe(0);
  });
});

/** How many processes of this host have a word in their arguments. */
function processesWith(word: string): number {
  const found = Bun.spawnSync(["pgrep", "-c", "-f", "--", word]);
  return Number(found.stdout.toString().trim());
}
