import { afterAll, beforeAll, expect, test } from "bun:test";
import { closeSync, readSync } from "node:fs";
import { constants as osConstants } from "node:os";
import { requireHost } from "../helpers/host.ts";
import { type HostState, hostState, leftovers } from "./host-state.ts";
import { pipe, removeTemporaryDirectories, waitReadable } from "./native.ts";
import { initFd, Sandbox } from "./sandbox.ts";
import {
  decodeArchive,
  directory,
  type Entry,
  encodeArchive,
  file,
  link,
  reportType,
  step,
} from "./wire.ts";

const { EINTR, E2BIG, ENOSPC, EPIPE } = osConstants.errno;

const tree: Entry[] = [
  directory("", 0o750),
  directory("bin", 0o755),
  file("bin/tool", "#!/bin/sh\necho tool\n", 0o755),
  directory("closed", 0o555),
  file("closed/secret", "s", 0o400),
  directory("empty", 0o700),
  file("empty-file"),
  file("ümlaut and space\n", "name"),
  file("large", Buffer.alloc(300_000, "0123456789abcdef"), 0o600),
  link("dangling", "/no/such/place"),
  link("up", "../../etc/passwd"),
];

requireHost({ root: true, userns: true, programs: ["python3"] }).describe("PACK and UNPACK", () => {
  let before: HostState;
  let sandbox: Sandbox;
  beforeAll(() => {
    expect(initFd).toBeGreaterThan(0);
    before = hostState();
    sandbox = Sandbox.open();
  });
  afterAll(() => {
    sandbox[Symbol.dispose]();
    expect(leftovers(before)).toEqual([]);
    removeTemporaryDirectories();
  });

  /** Names in a directory, of every kind, hidden ones too. */
  const names = (path: string): string[] =>
    sandbox.run(["/bin/ls", "-A", path]).out.split("\n").filter(Boolean);
  const stages = (): string => sandbox.sh("find /workspace /tmp -name '.cprg-stage*'").out;

  test("carry a tree there and back", () => {
    const content = tree.reduce((sum, entry) => sum + Buffer.byteLength(entry.content ?? ""), 0);
    expect(sandbox.unpack("/workspace/a/b/tree", encodeArchive(tree))).toMatchObject({
      type: reportType.transferred,
      step: 0,
      err: 0,
      code: 0,
      entries: BigInt(tree.length),
      bytes: BigInt(content),
    });
    expect(
      sandbox.sh(
        "stat -c %a . a a/b a/b/tree a/b/tree/closed; stat -c %u:%g a/b/tree/large; a/b/tree/bin/tool",
      ).out,
    ).toBe("755\n755\n755\n750\n555\n1000:1000\ntool\n");
    expect(stages()).toBe("");

    const { report, stream } = sandbox.pack("/workspace/a/b/tree");
    expect(report).toMatchObject({
      type: reportType.transferred,
      step: 0,
      entries: BigInt(tree.length),
      bytes: BigInt(content),
    });
    const packed = decodeArchive(stream);
    const types = { file: 1, directory: 2, link: 3 };
    const wanted = tree.map((entry) => ({
      type: types[entry.type],
      path: entry.path,
      mode: entry.type === "link" ? 0o777 : (entry.mode ?? 0),
      content: Buffer.from(entry.content ?? "").toString(),
    }));
    const got = packed.map((entry) => ({ ...entry, content: entry.content.toString() }));
    const byPath = (a: { path: string }, b: { path: string }): number => (a.path < b.path ? -1 : 1);
    expect(got.toSorted(byPath)).toEqual(wanted.toSorted(byPath));
    // Directories come before what is in them.
    const seen = new Set<string>();
    for (const { path, type } of packed) {
      if (path.includes("/")) expect(seen).toContain(path.slice(0, path.lastIndexOf("/")));
      if (type === types.directory) seen.add(path);
    }
    // What came out goes in again.
    expect(sandbox.unpack("/tmp/again", stream).err).toBe(0);
    expect(sandbox.sh("diff -r --no-dereference /tmp/again a/b/tree && echo same").out).toBe(
      "same\n",
    );
  });

  test.each<[string, Entry]>([
    ["file", file("", "hello", 0o640)],
    ["link", link("", "target")],
    ["directory", directory("", 0o711)],
  ])("carry a single %s", (_name, entry) => {
    expect(sandbox.unpack("/workspace/single", encodeArchive([entry])).err).toBe(0);
    const { report, stream } = sandbox.pack("/workspace/single");
    expect(report.entries).toBe(1n);
    expect(decodeArchive(stream)).toMatchObject([
      { path: "", content: Buffer.from(entry.content ?? "") },
    ]);
  });

  test("replace files, links, directories and trees by each other, at once", () => {
    const kinds: Entry[][] = [
      [file("", "one")],
      [directory(""), file("a", "1")],
      [link("", "nowhere")],
      [directory(""), directory("deep"), directory("deep/deeper", 0o500), file("deep/deeper/b")],
      [file("c", "no directory entry before it")],
      [directory("")],
      [file("", "two")],
    ];
    for (const entries of kinds) {
      expect(sandbox.unpack("/workspace/target", encodeArchive(entries)).err).toBe(0);
      expect(stages()).toBe("");
    }
    expect(sandbox.run(["/bin/cat", "/workspace/target"]).out).toBe("two");
  });

  test("merge into a directory without touching the rest", () => {
    sandbox.sh(
      "mkdir -m 700 m m/sub; echo old > m/kept; echo old > m/sub/changed; mkdir m/sub/dir; ln -s kept m/link; chmod 711 m/sub",
    );
    const report = sandbox.unpack(
      "/workspace/m",
      encodeArchive([
        directory("", 0o777),
        directory("sub", 0o777),
        file("sub/changed", "new", 0o600),
        directory("new", 0o500),
        file("new/file", "f"),
        link("link", "elsewhere"),
        file("sub/added", "a"),
      ]),
      { merge: true },
    );
    expect(report).toMatchObject({ err: 0, entries: 7n });
    expect(
      sandbox.sh(
        "cd m; cat kept sub/changed new/file sub/added; readlink link; stat -c %a . sub new sub/changed",
      ).out,
    ).toBe("old\nnewfaelsewhere\n700\n711\n500\n600\n");
    expect(stages()).toBe("");
  });

  test("keep modes exact, whatever the umask, and drop setuid, setgid and sticky", () => {
    sandbox.unpack(
      "/workspace/modes",
      encodeArchive([file("all", "", 0o7777), directory("d", 0o7777), file("none", "", 0)]),
      { umask: 0o777 },
    );
    expect(sandbox.sh("cd modes; stat -c %a all d none").out).toBe("777\n777\n0\n");
  });

  const deep = (depth: number): Entry[] =>
    Array.from({ length: depth }, (_, index) =>
      directory(
        Array(index + 1)
          .fill("d")
          .join("/"),
      ),
    );
  test("take 64 directories within each other", () => {
    expect(sandbox.unpack("/workspace/deep", encodeArchive(deep(64))).err).toBe(0);
    expect(sandbox.pack("/workspace/deep").report).toMatchObject({ err: 0, entries: 65n });
    sandbox.sh(`cd deep/${"d/".repeat(64)} && mkdir one-more`);
    expect(sandbox.pack("/workspace/deep").report).toMatchObject({ step: step.stream, err: E2BIG });
  });

  test("stop at a full disk, and leave nothing", () => {
    const big = file("big", Buffer.alloc(70_000_000));
    expect(sandbox.unpack("/tmp/big", encodeArchive([file("small", "s"), big]))).toMatchObject({
      step: step.entry,
      index: 1,
      err: ENOSPC,
    });
    expect(names("/tmp")).not.toContain("big");
    expect(stages()).toBe("");
  });

  test("obey rlimits", () => {
    const fsize = 1;
    const report = sandbox.unpack("/tmp/limited", encodeArchive([file("", Buffer.alloc(5000))]), {
      rlimits: [{ resource: fsize, soft: 4096n, hard: 4096n }],
    });
    expect(report).toMatchObject({ step: step.entry, err: 27 });
    expect(names("/tmp")).not.toContain("limited");
  });

  test("leave out what is neither file, directory nor link", () => {
    sandbox.sh(
      "mkdir special; mkfifo special/fifo; echo x > special/file; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"special/socket\")'",
    );
    const { report, stream } = sandbox.pack("/workspace/special");
    expect(report.err).toBe(0);
    expect(decodeArchive(stream).map(({ path }) => path)).toEqual(["", "file"]);
  });

  test("end a PACK whose reader is gone, and one that is told to stop", () => {
    sandbox.sh("head -c 1000000 /dev/zero > megabyte");
    for (const stop of [false, true]) {
      const id = sandbox.newId();
      const [read, write] = pipe();
      sandbox.send({ type: "pack", id, path: "/workspace/megabyte" }, [write]);
      closeSync(write);
      expect(sandbox.nextOf(id).type).toBe(reportType.started);
      waitReadable(read);
      if (stop) sandbox.send({ type: "signal", id, signal: 15 });
      else closeSync(read);
      expect(sandbox.nextOf(id)).toMatchObject({
        type: reportType.transferred,
        step: step.stream,
        err: stop ? EINTR : EPIPE,
      });
      if (stop) closeSync(read);
    }
  });

  test("fail when a file shrinks while it is sent", () => {
    sandbox.sh("head -c 1000000 /dev/zero > shrinking");
    const id = sandbox.newId();
    const [read, write] = pipe();
    sandbox.send({ type: "pack", id, path: "/workspace/shrinking" }, [write]);
    closeSync(write);
    expect(sandbox.nextOf(id).type).toBe(reportType.started);
    waitReadable(read); // the header is out and the pipe is full
    sandbox.sh(": > shrinking");
    drain(read);
    expect(sandbox.nextOf(id)).toMatchObject({
      type: reportType.transferred,
      step: step.entry,
      err: 5,
    });
    closeSync(read);
  });

  test("carry many small files", () => {
    const entries = [
      directory(""),
      ...Array.from({ length: 5000 }, (_, index) => file(`f${index}`, `${index}`)),
    ];
    expect(sandbox.unpack("/workspace/many", encodeArchive(entries))).toMatchObject({
      err: 0,
      entries: 5001n,
    });
    expect(decodeArchive(sandbox.pack("/workspace/many").stream)).toHaveLength(5001);
    expect(sandbox.unpack("/workspace/many", encodeArchive([directory("")])).err).toBe(0); // removes them
    expect(names("/workspace/many")).toEqual([]);
  });

  test("remove an old tree that is deeper than descriptors and paths reach", () => {
    const level = "dddddddd/".repeat(300);
    const script = `mkdir old; cd old; for i in 1 2 3 4 5; do mkdir -p ${level} && cd ${level}; done; : > bottom`;
    expect(sandbox.sh(script).report.code).toBe(0);
    expect(sandbox.unpack("/workspace/old", encodeArchive([file("", "new")])).err).toBe(0);
    expect(stages()).toBe("");
  });
});

/** Reads until the writer is done, throwing the bytes away. */
function drain(fd: number): void {
  const chunk = new Uint8Array(65536);
  for (;;) {
    waitReadable(fd);
    if (readSync(fd, chunk) === 0) return;
  }
}
