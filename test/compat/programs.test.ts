// Real programs in a sandbox with every layer on: what is legitimate works, and nothing that they do
// is a violation. What the filter alone does to everyday programs is in test/seccomp.

import { expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Limits } from "../../src/core/limits.ts";
import { requireHost } from "../helpers/host.ts";
import { ENV, finish, PYTHON, type Ran, useEngine } from "../sandbox/test-engine.ts";

const host = requireHost({
  root: true,
  userns: true,
  cgroup: true,
  programs: [PYTHON, "bash", "perl", "git", "gcc", "make", "xz", "/usr/bin/node"],
});
const hasPandas = Bun.spawnSync([PYTHON, "-c", "import pandas"]).exitCode === 0;
// No program has the name of a package, so a missing one reads "needs python3-pandas".
const pandasHost = requireHost({
  root: true,
  userns: true,
  cgroup: true,
  programs: hasPandas ? [] : ["python3-pandas"],
});

/** More than a job gets by default, and well beneath the ceilings. */
const LIMITS: Partial<Limits> = {
  wall_seconds: 120,
  cpu_seconds: 120,
  cpu_cores: 2,
  mem_mb: 1024,
  pids: 256,
  disk_mb: 512,
  file_mb: 2048,
  open_files: 1024,
};

const OWN = join(import.meta.dir, "programs");
const EVERYDAY = join(import.meta.dir, "../seccomp/programs");

/** What a program has done, as far as these tests look. */
interface Told {
  readonly lines: readonly string[];
  readonly stderr: string;
  readonly outcome: Readonly<Record<string, unknown>>;
}

/** What one that has gone well looks like. */
function well(...lines: string[]): Told {
  return {
    lines,
    stderr: "",
    outcome: { reason: "exit", exitCode: 0, violations: [], limitsHit: [] },
  };
}

host.describe("in a sandbox", () => {
  const bench = useEngine();
  setDefaultTimeout(120_000);

  /** Runs a file of these folders as a job of its language, or as any program. */
  const run = async (
    language: string,
    path: string,
    text = readFileSync(path, "utf8"),
  ): Promise<Told> => {
    const lease = await bench.open(LIMITS);
    const known = language === "perl" ? null : await bench.engine.languages.resolve(language);
    const place = `/workspace/${known?.fileName ?? "main"}`;
    await lease.putFile(place, Buffer.from(text));
    const ran: Ran = await finish(
      await lease.exec({
        executable: known?.executable ?? "/usr/bin/perl",
        arguments: known?.command([]) ?? [place],
        variables: { ...ENV, ...known?.variables },
        language,
      }),
    );
    const { reason, exitCode, violations, limitsHit } = ran.outcome;
    return {
      lines: ran.stdout.split("\n").slice(0, -1),
      stderr: ran.stderr,
      outcome: { reason, exitCode, violations, limitsHit },
    };
  };

  test.each([
    { language: "python", file: "everyday.py", lines: 8 },
    { language: "node", file: "everyday.cjs", lines: 5 },
    { language: "typescript", file: "everyday.ts", lines: 5 },
    { language: "bash", file: "everyday.sh", lines: 6 },
    { language: "perl", file: "everyday.pl", lines: 3 },
  ])("$language: what works under its filter works with every other layer", async (each) => {
    const ended = await run(each.language, join(EVERYDAY, each.file));
    expect(ended).toEqual(well(...ended.lines));
    expect(ended.lines).toHaveLength(each.lines);
  });

  test("python: multiprocessing with each start method", async () => {
    expect(await run("python", join(OWN, "processes.py"))).toEqual(
      well("pools", "queues", "semaphores", "memory", "managers", "children"),
    );
  });

  test("python: asyncio with programs and unix sockets, sqlite with several writers", async () => {
    expect(await run("python", join(OWN, "services.py"))).toEqual(
      well("programs", "sockets", "databases"),
    );
  });

  test("node: workers on shared memory, child processes, watched directories", async () => {
    expect(await run("node", join(OWN, "workers.cjs"))).toEqual(
      well("workers", "children", "watching"),
    );
  });

  test("typescript and javascript: hot loops, workers, database", async () => {
    const path = join(OWN, "compiler.ts");
    const plain = new Bun.Transpiler({ loader: "ts" }).transformSync(readFileSync(path, "utf8"));
    const expected = well("loop", "garbage", "workers", "database");
    expect(await run("typescript", path)).toEqual(expected);
    expect(await run("javascript", path, plain)).toEqual(expected);
  });

  test("git: commits, clones, worktrees, bundles, gc", async () => {
    expect(await run("bash", join(OWN, "repository.sh"))).toEqual(
      well("commits", "topic", "clones", "work", "0", "upkeep"),
    );
  });

  test("make, gcc, ar: dynamic, loaded and static programs; tar and xz with threads", async () => {
    expect(await run("bash", join(OWN, "build.sh"))).toEqual(
      well("10", "10", "10", "10", "built", "43", "packed"),
    );
  });

  test("bash: pipelines, process substitution, job control", async () => {
    expect(await run("bash", join(OWN, "shell.sh"))).toEqual(
      well(
        ...["450000", "3\tc", "y", "HERE", "pipes", "2", "term", "jobs"],
        ...["none", "locked", "8", "1", "buffered", "tools"],
      ),
    );
  });

  test("perl: threads, System V queues, unix sockets, dbm files", async () => {
    expect(await run("perl", join(OWN, "threads.pl"))).toEqual(
      well("threads", "queues", "sockets", "files"),
    );
  });

  pandasHost.test("python: numpy with its threads, pandas", async () => {
    expect(await run("python", join(OWN, "frames.py"))).toEqual(
      well("algebra", "threads", "files", "frames"),
    );
  });

  test("links of Python and Java into /etc lead where they lead outside", async () => {
    const places = ["/usr/lib/python3*", "/usr/lib/jvm"];
    const script = `find ${places.join(" ")} -maxdepth 6 -xtype l -lname '/etc/*' 2>/dev/null; exit 0`;
    const outside = Bun.spawnSync(["bash", "-c", script]).stdout.toString();
    const ended = await run("bash", "", script);
    expect(ended).toEqual(well(...outside.split("\n").slice(0, -1)));
  });
});
