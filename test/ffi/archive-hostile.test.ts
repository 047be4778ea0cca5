import { afterAll, beforeAll, expect, test } from "bun:test";
import { closeSync, writeSync } from "node:fs";
import { constants as osConstants } from "node:os";
import { requireHost } from "../helpers/host.ts";
import { type HostState, hostState, leftovers } from "./host-state.ts";
import { pipe, removeTemporaryDirectories } from "./native.ts";
import { initFd, Sandbox, writeAll } from "./sandbox.ts";
import {
  directory,
  type Entry,
  encodeArchive,
  encodeEntry,
  endEntry,
  file,
  link,
  reportType,
  step,
} from "./wire.ts";

const { ENOENT, EINTR, ECHILD, EACCES, ENOTDIR, EISDIR, EINVAL, EPIPE, ELOOP, EOPNOTSUPP } =
  osConstants.errno;

requireHost({ root: true, userns: true, programs: ["python3"] }).describe(
  "PACK and UNPACK, against whoever is hostile,",
  () => {
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

    const deep = (depth: number): Entry[] =>
      Array.from({ length: depth }, (_, index) =>
        directory(
          Array(index + 1)
            .fill("d")
            .join("/"),
        ),
      );
    const raw = (parts: Uint8Array[]): Uint8Array => Buffer.concat(parts);
    const plain = encodeEntry({ type: 1, path: "ok", content: Buffer.from("fine"), mode: 0o644 });
    const hostile: [string, Uint8Array, number][] = [
      ["a wrong magic", raw([encodeEntry({ type: 1, path: "x", magic: 1 })]), 0],
      ["an unknown type", raw([plain, encodeEntry({ type: 5, path: "x" })]), 1],
      ["type 0", raw([encodeEntry({ type: 0, path: "x" })]), 0],
      ["an absolute path", encodeArchive([file("/etc/x")]), 0],
      ["..", encodeArchive([file("..")]), 0],
      [".. in the middle", encodeArchive([directory("a"), file("a/../b")]), 1],
      [".. at the end", encodeArchive([directory("a/..")]), 0],
      ["a dot", encodeArchive([file("./a")]), 0],
      ["an empty component", encodeArchive([directory("a"), file("a//b")]), 1],
      ["a slash at the end", encodeArchive([directory("a/")]), 0],
      ["a NUL in the path", encodeArchive([file("a\0b")]), 0],
      ["a NUL in a link", encodeArchive([link("a", "b\0c")]), 0],
      ["an empty link", encodeArchive([link("a", "")]), 0],
      ["a link that is too long", encodeArchive([link("a", "x".repeat(4096))]), 0],
      ["a path that is too long", encodeArchive([file(`${"x".repeat(250)}/`.repeat(17))]), 0],
      ["a path of 4 GiB", raw([encodeEntry({ type: 1, path: "" }).fill(0xff, 12, 16)]), 0],
      [
        "a path that is too deep",
        encodeArchive([...deep(64), file(Array(65).fill("d").join("/"))]),
        64,
      ],
      [
        "a directory with content",
        raw([encodeEntry({ type: 2, path: "d", size: 1, content: Buffer.from("x") })]),
        0,
      ],
      ["an end with a path", raw([plain, encodeEntry({ type: 4, path: "x" })]), 1],
      ["itself twice", encodeArchive([directory(""), directory("")]), 1],
      ["itself after something inside", encodeArchive([file("a"), directory("")]), 1],
      ["more than a single file", encodeArchive([file("", "x"), file("b")]), 1],
      ["nothing at all", endEntry, 0],
    ];
    test.each(hostile)("refuse %s, and leave nothing", (_name, stream, index) => {
      const report = sandbox.unpack("/workspace/hostile", stream);
      expect(report).toMatchObject({
        type: reportType.transferred,
        step: step.stream,
        index,
        err: EINVAL,
      });
      expect(names("/workspace")).not.toContain("hostile");
      expect(stages()).toBe("");
    });

    test("leave nothing of a stream that is cut, wherever it is cut", () => {
      const stream = encodeArchive([
        directory("d"),
        file("d/a", "aaaa"),
        link("l", "t"),
        file("z", "zz"),
      ]);
      for (let length = 0; length < stream.byteLength; length += 7) {
        const report = sandbox.unpack("/workspace/cut", stream.slice(0, length));
        expect(report).toMatchObject({
          type: reportType.transferred,
          step: step.stream,
          err: EPIPE,
        });
      }
      expect(names("/workspace")).not.toContain("cut");
      expect(stages()).toBe("");
      sandbox.sh("mkdir merged; echo old > merged/z");
      for (let length = 0; length < stream.byteLength; length += 7) {
        sandbox.unpack("/workspace/merged", stream.slice(0, length), { merge: true });
      }
      // All of it or nothing of it: what lacks only the END entry is there.
      expect(sandbox.run(["/bin/cat", "/workspace/merged/z"]).out).toBe("zz");
      sandbox.sh("echo old > merged/z");
      sandbox.unpack("/workspace/merged", stream.slice(0, -endEntry.byteLength - 1), {
        merge: true,
      });
      expect(sandbox.run(["/bin/cat", "/workspace/merged/z"]).out).toBe("old\n");
      expect(stages()).toBe("");
    });

    test("leave nothing when stopped by SIGTERM", () => {
      for (const merge of [false, true]) {
        const id = sandbox.newId();
        const [read, write] = pipe();
        sandbox.sh("mkdir -p stopped-merge");
        sandbox.send(
          {
            type: "unpack",
            id,
            path: merge ? "/workspace/stopped-merge" : "/workspace/stopped",
            merge,
          },
          [read],
        );
        closeSync(read);
        expect(sandbox.nextOf(id).type).toBe(reportType.started);
        writeAll(
          write,
          encodeEntry({ type: 1, path: "half", content: Buffer.from("x"), size: 1000 }),
        );
        while (stages() === ""); // it has begun
        sandbox.send({ type: "signal", id, signal: 15 });
        expect(sandbox.nextOf(id)).toMatchObject({
          type: reportType.transferred,
          step: step.stream,
          err: EINTR,
        });
        closeSync(write);
      }
      expect(stages()).toBe("");
      expect(names("/workspace")).not.toContain("stopped");
    });

    test("report a transfer that is killed", () => {
      const id = sandbox.newId();
      const [read, write] = pipe();
      sandbox.send({ type: "unpack", id, path: "/workspace/killed" }, [read]);
      closeSync(read);
      expect(sandbox.nextOf(id).type).toBe(reportType.started);
      sandbox.send({ type: "signal", id, signal: 9 });
      expect(sandbox.nextOf(id)).toMatchObject({
        type: reportType.transferred,
        step: step.stream,
        err: ECHILD,
        signal: 9,
      });
      closeSync(write);
    });

    test("follow no link beneath the destination", () => {
      sandbox.sh("mkdir trap outside; ln -s ../outside trap/link; ln -s /tmp trap/abs");
      const merge = (entries: Entry[]): [number, number] => {
        const { step: at, err } = sandbox.unpack("/workspace/trap", encodeArchive(entries), {
          merge: true,
        });
        return [at, err];
      };
      expect(merge([file("link/x", "1")])).toEqual([step.entry, ELOOP]);
      expect(merge([file("abs/x", "1")])).toEqual([step.entry, ELOOP]);
      expect(merge([directory("link")])).toEqual([step.entry, ENOTDIR]);
      expect(merge([directory("link/d")])).toEqual([step.entry, ELOOP]);
      expect(merge([file("missing/x")])).toEqual([step.entry, ENOENT]);
      expect(merge([link("evil", "/tmp"), file("evil/x")])).toEqual([step.entry, ELOOP]);
      expect(merge([directory("full"), file("full", "x")])).toEqual([step.entry, EISDIR]);
      expect(merge([file("f"), directory("f")])).toEqual([step.entry, ENOTDIR]);
      // A link at the end is replaced, not followed.
      expect(merge([file("link", "now a file")])).toEqual([0, 0]);
      expect(names("/workspace/outside")).toEqual([]);
      // In a tree of its own a name that comes again replaces, but no directory and none by one.
      const twice = (entries: ReturnType<typeof file>[]): readonly [number, number] => {
        const { step: failed, err } = sandbox.unpack("/workspace/dup", encodeArchive(entries));
        return [failed, err];
      };
      expect(twice([file("a"), file("a", "again")])).toEqual([0, 0]);
      expect(names("/workspace/dup")).toEqual(["a"]);
      expect(twice([directory("a"), file("a")])).toEqual([step.entry, EISDIR]);
      expect(twice([file("a"), directory("a")])).toEqual([step.entry, ENOTDIR]);
      expect(stages()).toBe("");
    });

    test("have the program's rights and no more", () => {
      expect(sandbox.unpack("/usr/evil", encodeArchive([file("a")]))).toMatchObject({
        step: step.entry,
        err: 30,
      });
      expect(
        sandbox.unpack("/etc/passwd", encodeArchive([file("", "root::0:0::/:")])),
      ).toMatchObject({ step: step.entry, err: 30 });
      expect(sandbox.unpack("/proc/x", encodeArchive([file("")])).err).not.toBe(0);
      expect(sandbox.unpack("/", encodeArchive([directory("")]))).toMatchObject({ err: EINVAL });
      expect(sandbox.unpack("/workspace/../etc", encodeArchive([directory("")]))).toMatchObject({
        err: EINVAL,
      });
      expect(
        sandbox.unpack("/workspace/none/x", encodeArchive([file("a")]), { merge: true }),
      ).toMatchObject({ step: step.entry, err: ENOENT });
      sandbox.sh("mkdir -m 0 locked");
      expect(sandbox.pack("/workspace/locked").report).toMatchObject({
        step: step.entry,
        index: 0,
        err: EACCES,
      });
      expect(sandbox.pack("/proc/1/environ").report).toMatchObject({ err: EACCES });
      expect(sandbox.pack("/workspace/absent").report).toMatchObject({
        step: step.entry,
        err: ENOENT,
      });
      expect(sandbox.pack("/dev/null").report).toMatchObject({ step: step.entry, err: EOPNOTSUPP });
    });

    test("do not hang on leftovers under the staging name", () => {
      const id = 5_000_000;
      sandbox.sh(
        `mkdir .cprg-stage-${id} s; ln -s / s/.cprg-stage-${id}; touch s/.cprg-stage-${id}-1`,
      );
      expect(sandbox.unpack("/workspace/staged", encodeArchive([file("a", "1")])).err).toBe(0);
      const [read, write] = pipe();
      sandbox.send({ type: "unpack", id, path: "/workspace/s", merge: true }, [read]);
      closeSync(read);
      writeAll(write, encodeArchive([file("b", "2")]));
      closeSync(write);
      expect(sandbox.nextOf(id).type).toBe(reportType.started);
      expect(sandbox.nextOf(id).err).toBe(0);
      expect(names("/workspace/s").toSorted()).toEqual([
        `.cprg-stage-${id}`,
        `.cprg-stage-${id}-1`,
        "b",
      ]);
      sandbox.sh(`rm -r .cprg-stage-${id} s`);
    });

    test("start nothing without an absolute path or with the wrong descriptors", () => {
      const [read, write] = pipe();
      for (const [request, fds] of [
        [{ path: "relative" }, [read]],
        [{ path: "/tmp/x" }, []],
        [{ path: "/tmp/x" }, [read, read]],
      ] as const) {
        const id = sandbox.newId();
        sandbox.send({ type: "unpack", id, ...request }, fds);
        expect(sandbox.nextOf(id)).toMatchObject({
          type: reportType.execFailed,
          step: step.request,
        });
      }
      writeSync(write, "x");
      closeSync(read);
      closeSync(write);
    });
  },
);
