import { expect } from "bun:test";
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  BLOCK_BYTES,
  encodeHeader,
  paddingOf,
  type TarFields,
} from "../../src/sandbox/tar-header.ts";
import { rawClient, requestHead } from "../e2e/raw-client.ts";
import { requireHost } from "../helpers/host.ts";
import { KEY_A } from "../http/fixture.ts";
import { useSandboxServer } from "./sandbox-server.ts";
import { PYTHON, until } from "./test-engine.ts";

const host = requireHost({ sandbox: true });
const TAR = { "Content-Type": "application/x-tar" };
const BINARY = Uint8Array.from({ length: 100_000 }, (_, index) => (index * 7919) % 256);

/** Everything about a tree that must survive. */
function describeTree(top: string): readonly string[] {
  return readdirSync(top, { recursive: true, encoding: "utf8" })
    .sort()
    .map((name) => {
      const path = join(top, name);
      const status = lstatSync(path);
      const mode = (status.mode & 0o777).toString(8);
      if (status.isSymbolicLink()) return `${name} -> ${readlinkSync(path)}`;
      if (status.isDirectory()) return `${name}/ ${mode}`;
      return `${name} ${mode} ${Bun.hash(readFileSync(path))}`;
    });
}

function tar(
  ...entries: (Partial<TarFields> & { content?: Uint8Array; raw?: string })[]
): Uint8Array {
  const blocks = entries.flatMap(({ content = new Uint8Array(0), raw, ...fields }) => {
    const header = Buffer.from(
      encodeHeader({
        name: "x",
        mode: 0o644,
        size: content.length,
        type: "0",
        linkName: "",
        mtimeSeconds: 0,
        ...fields,
      }),
    );
    if (raw !== undefined) {
      header.write(raw, 156, "latin1");
      header.write("        ", 148, "latin1");
      const sum = header.reduce((total, byte) => total + byte, 0);
      header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
    }
    return [header, content, new Uint8Array(paddingOf(content.length))];
  });
  return Buffer.concat([...blocks, new Uint8Array(2 * BLOCK_BYTES)]);
}

const pax = (record: string) => ({ raw: "x", name: "pax", content: Buffer.from(record) });

/** A pax record whose length is right. */
function record(text: string): string {
  const rest = ` ${text}\n`.length;
  for (let digits = 1; ; digits += 1) {
    const length = `${rest + digits}`;
    if (length.length === digits) return `${length} ${text}\n`;
  }
}

host.describe("files over HTTP", () => {
  const server = useSandboxServer();
  const at = (id: string, path: string): string => `/v1/sandboxes/${id}/files/${path}`;
  const names = async (id: string, path: string): Promise<string> =>
    (await server.sh(id, `cd ${path} && find . | sort`)).stdout;

  host.test("one file goes in and out as it is, with its mode, and away", async () => {
    const id = await server.open();
    const put = await server.ask(at(id, "dir/f?mode=751"), { method: "PUT", body: BINARY });
    expect(put.status).toBe(204);
    const seen = await server.sh(id, "stat -c '%a %s %u' dir/f; sha256sum < dir/f");
    const hash = new Bun.CryptoHasher("sha256").update(BINARY).digest("hex");
    expect(seen.stdout).toBe(`751 100000 1000\n${hash}  -\n`);
    const got = await fetch(new URL(at(id, "dir/f"), server.url), {
      headers: { Authorization: `Bearer ${KEY_A}` },
    });
    expect(got.headers.get("content-disposition")).toBe("attachment");
    expect(got.headers.get("content-security-policy")).toContain("sandbox");
    expect(Buffer.from(await got.arrayBuffer()).equals(BINARY)).toBe(true);
    for (const path of ["dir/f", "dir", "dir", "not/there"]) {
      expect((await server.ask(at(id, path), { method: "DELETE" })).status).toBe(204);
    }
    expect((await server.ask(at(id, "dir/f"))).status).toBe(404);
    expect((await server.ask(at(id, ""), { method: "DELETE" })).status).toBeGreaterThanOrEqual(400);
    expect(await names(id, "/workspace")).toBe(".\n");
  });

  host.test("empty files, odd names and absolute paths are what they are", async () => {
    const id = await server.open();
    for (const name of ["empty", "a b", "%41", "new\nline", "é😀", "-rf", "a\\b", "...", "#?&"]) {
      const path = at(id, encodeURIComponent(name));
      expect((await server.ask(path, { method: "PUT", body: new Uint8Array(0) })).status).toBe(204);
      expect((await server.ask(path)).text).toBe("");
    }
    expect((await server.sh(id, "ls | wc -l; test -e '%41' && echo there")).stdout).toContain(
      "there",
    );
    const tmp = at(id, "%2Ftmp/x");
    expect((await server.ask(tmp, { method: "PUT", body: "t" })).status).toBe(204);
    expect((await server.sh(id, "cat /tmp/x")).stdout).toBe("t");
    for (const path of ["%FF", "a%00b", `${"x/".repeat(80)}x`, "x".repeat(5000)]) {
      const answer = await server.ask(at(id, path), { method: "PUT", body: "x" });
      expect(answer.status).toBe(400);
    }
    // Not the program's to write, and nothing of the host's either way.
    const etc = await server.ask(at(id, "%2Fetc/passwd"), { method: "PUT", body: "x" });
    expect(etc.status).toBeGreaterThanOrEqual(400);
    expect((await server.ask(at(id, "%2Fetc/passwd"))).text).toContain("agent:x:1000");
  });

  host.test(
    "a tree goes in and out with exact bytes, modes and links, as tar(1) makes it",
    async () => {
      const id = await server.open();
      const top = mkdtempSync(join(tmpdir(), "cprg-tree-"));
      try {
        const tree = join(top, "tree");
        mkdirSync(join(tree, "d/e/empty"), { recursive: true });
        writeFileSync(join(tree, "d/binary"), BINARY);
        writeFileSync(join(tree, "d/e/zero"), "");
        writeFileSync(join(tree, "run"), "#!/bin/sh\n", { mode: 0o755 });
        const long = `${"n".repeat(120)}-é`;
        writeFileSync(join(tree, long), "long");
        symlinkSync("../run", join(tree, "d/link"));
        symlinkSync(long, join(tree, "l".repeat(110)));
        chmodSync(join(tree, "d/e"), 0o711);
        chmodSync(join(tree, "d/e/zero"), 0o400);
        for (const format of ["gnu", "posix", "ustar"]) {
          const names = format === "ustar" ? ["d", "run"] : ["."];
          const packed = Bun.spawnSync([
            "tar",
            "-C",
            tree,
            `--format=${format}`,
            // An id above 2097151 does not fit into a ustar header.
            ...["--owner=0", "--group=0"],
            "-cf",
            "-",
            ...names,
          ]);
          expect(packed.stderr.toString()).toBe("");
          const put = await server.ask(at(id, "in"), {
            method: "PUT",
            body: new Uint8Array(packed.stdout),
            headers: TAR,
          });
          expect([format, put.status, put.text]).toEqual([format, 204, ""]);
          const got = await fetch(new URL(`${at(id, "in")}?format=tar`, server.url), {
            headers: { Authorization: `Bearer ${KEY_A}` },
          });
          const back = join(top, `back-${format}`);
          mkdirSync(back);
          const stdin = new Uint8Array(await got.arrayBuffer());
          const unpacked = Bun.spawnSync(["tar", "-C", back, "-xpf", "-"], { stdin });
          expect(unpacked.stderr.toString()).toBe("");
          const wanted = describeTree(tree).filter(
            (line) => format !== "ustar" || /^(d\b|run)/.test(line),
          );
          expect(describeTree(back)).toEqual(wanted);
        }
      } finally {
        rmSync(top, { recursive: true });
      }
    },
  );

  host.test("a tar replaces a tree at once, or is merged into it", async () => {
    const id = await server.open();
    await server.sh(id, "mkdir -p t/old; echo 1 > t/old/f; echo 1 > t/both");
    const body = tar({ name: "both", content: Buffer.from("2") }, { name: "new/f" });
    const merged = await server.ask(`${at(id, "t")}?merge=true`, {
      method: "PUT",
      body,
      headers: TAR,
    });
    expect(merged.status).toBe(204);
    expect(await names(id, "t")).toBe(".\n./both\n./new\n./new/f\n./old\n./old/f\n");
    expect((await server.ask(at(id, "t"), { method: "PUT", body, headers: TAR })).status).toBe(204);
    expect(await names(id, "t")).toBe(".\n./both\n./new\n./new/f\n");
    expect((await server.sh(id, "cat t/both")).stdout).toBe("2");
    // The workspace itself cannot be replaced.
    expect((await server.ask(at(id, ""), { method: "PUT", body, headers: TAR })).status).toBe(204);
    expect((await server.sh(id, "ls")).stdout).toBe("both\nnew\nt\n");
  });

  host.test("hostile tars are refused with what is wrong, and leave nothing", async () => {
    const id = await server.open();
    await server.sh(id, "mkdir t; echo kept > t/kept");
    const big = Buffer.alloc(70_000, 0x61);
    const noUtf8 = Buffer.from(tar({ name: "abc" }));
    noUtf8[0] = 0xff;
    const fixed = Buffer.from(noUtf8);
    fixed.write("        ", 148, "latin1");
    const sum = fixed.subarray(0, 512).reduce((total, byte) => total + byte, 0);
    fixed.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
    const hostile: [string, Uint8Array, RegExp][] = [
      ["absolute", tar({ name: "/etc/x" }), /absolute/],
      ["parent", tar({ name: "a/../../x" }), /leads out/],
      ["pax parent", tar(pax(record("path=../../x")), {}), /leads out/],
      ["link out", tar({ type: "2", name: "l", linkName: "/etc/shadow" }), /leads out/],
      ["link up", tar({ type: "2", name: "d/l", linkName: "../../x" }), /leads out/],
      ["hard link", tar({ raw: "1", linkName: "kept" }), /hard link/],
      ["device", tar({ raw: "3" }), /device/],
      ["block device", tar({ raw: "4" }), /device/],
      ["fifo", tar({ raw: "6" }), /fifo/],
      ["gnu sparse", tar({ raw: "S" }), /sparse/],
      ["pax sparse", tar(pax(record("GNU.sparse.major=1")), {}), /sparse/],
      ["unknown", tar({ raw: "Z" }), /unknown type/],
      ["pax bomb", tar({ ...pax(""), content: big }), /extended header/],
      ["pax bomb that only claims", tar({ raw: "x", size: 2 ** 32 }), /extended header/],
      ["long name bomb", tar({ raw: "L", size: 2 ** 32 }), /extended header/],
      [
        "headers without end",
        tar(...Array.from({ length: 20 }, () => pax(record("a=b")))),
        /in a row/,
      ],
      ["global path", tar({ ...pax(record("path=x")), raw: "g" }, {}), /global/],
      ["bad pax", tar(pax("999 path=x\n"), {}), /pax/],
      ["a size beyond bounds", tar(pax(record("size=99999999999999999")), {}), /size/],
      ["no utf-8", fixed, /UTF-8/],
      ["bad checksum", noUtf8, /checksum/],
      ["deep", tar({ name: `${"d/".repeat(70)}f` }), /deeper/],
      ["a file as a directory", tar({ name: "f" }, { name: "f/g" }), /./],
      ["through a link", tar({ type: "2", name: "l", linkName: "d" }, { name: "l/f" }), /./],
      [
        "late directory",
        tar({ name: "d/f" }, { name: "d", type: "5", mode: 0o700 }),
        /comes after/,
      ],
      ["cut", tar({ name: "f", content: big }).subarray(0, 5000), /cut/],
      ["no end", tar({ name: "f" }).subarray(0, 512), /cut/],
      ["no tar", Buffer.from("hello"), /cut/],
      ["endless zeros", new Uint8Array(3 * 1024 * 1024), /after its end/],
      ["nothing", new Uint8Array(1024), /./],
    ];
    for (const [what, body, reason] of hostile) {
      const answer = await server.ask(at(id, "t"), { method: "PUT", body, headers: TAR });
      expect([what, answer.status]).toEqual([what, 400]);
      expect(`${what}: ${answer.json?.detail}`).toMatch(reason);
    }
    expect(await names(id, "/workspace")).toBe(".\n./t\n./t/kept\n");
    const free = tar({ type: "2", name: "l", linkName: "/usr/bin/python3" });
    const put = await server.ask(`${at(id, "t")}?links=any`, {
      method: "PUT",
      body: free,
      headers: TAR,
    });
    expect(put.status).toBe(204);
    expect((await server.sh(id, "readlink t/l")).stdout).toBe("/usr/bin/python3\n");
  });

  host.test(
    "of two files of one name in a tar the last stays, as tar(1) appends them",
    async () => {
      const id = await server.open();
      const body = tar(
        { name: "f", content: Buffer.from("first") },
        { name: "f", content: Buffer.from("last") },
      );
      const put = await server.ask(at(id, "t"), { method: "PUT", body, headers: TAR });
      expect(put.status).toBe(204);
      expect((await server.sh(id, "cat t/f; ls t")).stdout).toBe("lastf\n");
    },
  );

  host.test("an upload that is cut or too large leaves nothing", async () => {
    const id = await server.open({ limits: { disk_mb: 8, file_mb: 64 } });
    await server.sh(id, "mkdir t; echo kept > t/kept");
    const full = await server.ask(at(id, "t"), {
      method: "PUT",
      body: tar({ name: "big", content: new Uint8Array(16 * 1024 * 1024) }),
      headers: TAR,
    });
    expect(full.json.reason).toBe("SANDBOX_FULL");
    const abort = new AbortController();
    const endless = new ReadableStream({
      start: (controller) =>
        controller.enqueue(
          tar({ name: "a", content: Buffer.from("a") }, { name: "b", size: 1e6 }).subarray(
            0,
            -1024,
          ),
        ),
    });
    const cut = fetch(new URL(at(id, "t"), server.url), {
      method: "PUT",
      body: endless,
      headers: { Authorization: `Bearer ${KEY_A}`, ...TAR },
      signal: abort.signal,
    }).catch(() => null);
    const stage = async () =>
      (
        await server.sh(
          id,
          "find / -xdev -name '.cprg-stage-*' 2>/dev/null; find /workspace -name '.cprg-stage-*'",
        )
      ).stdout;
    await until("something is there", async () => (await stage()) !== "");
    abort.abort();
    await cut;
    await until("nothing is there", async () => (await stage()) === "");
    expect(await names(id, "/workspace")).toBe(".\n./t\n./t/kept\n");
  });

  host.test(
    "what is no single file is refused as one, and what is not there is not found",
    async () => {
      const id = await server.open();
      await server.sh(id, "mkdir d; ln -s d l; mkfifo p");
      expect((await server.ask(at(id, "d"))).json).toMatchObject({
        status: 400,
        reason: "NO_FILE",
      });
      expect((await server.ask(at(id, "l"))).json).toMatchObject({
        status: 400,
        reason: "NO_FILE",
      });
      expect((await server.ask(at(id, "p"))).status).toBeGreaterThanOrEqual(400);
      expect((await server.ask(at(id, "none"))).status).toBe(404);
      expect((await server.ask(`${at(id, "none")}?format=tar`)).status).toBe(404);
      const unknown = await fetch(new URL(at(id, "f"), server.url), {
        method: "PUT",
        headers: { Authorization: `Bearer ${KEY_A}` },
        body: new ReadableStream({
          start: (controller) => {
            controller.enqueue(Buffer.from("x"));
            controller.close();
          },
        }),
      });
      expect(unknown.status).toBe(411);
      expect(
        (await server.ask(`${at(id, "f")}?merge=true`, { method: "PUT", body: "x" })).status,
      ).toBe(400);
      expect(
        (await server.ask(`${at(id, "f")}?mode=999`, { method: "PUT", body: "x" })).status,
      ).toBe(400);
    },
  );

  host.test("a download that its client leaves ends the transfer", async () => {
    const id = await server.open({ limits: { disk_mb: 128, file_mb: 128 } });
    await server.sh(id, "head -c 60000000 /dev/zero > big");
    for (let round = 0; round < 12; round += 1) {
      const got = await fetch(new URL(at(id, "big"), server.url), {
        headers: { Authorization: `Bearer ${KEY_A}` },
      });
      await got.body?.cancel();
    }
    // More than may be under way at once: those that were left gave their places back.
    await until("a place is free", async () => (await server.ask(at(id, "none"))).status === 404);
  });

  host.test(
    "a sandbox ends though transfers stall, and an upload hears of it at once",
    async () => {
      const id = await server.open({ limits: { disk_mb: 128, file_mb: 128 } });
      await server.sh(id, "head -c 60000000 /dev/zero > big");
      const Authorization = `Bearer ${KEY_A}`;
      using put = rawClient(server.url.href);
      const size = { "Content-Length": 5_000_000 };
      put.send(requestHead(`PUT ${at(id, "in")}`, { Authorization, ...size }));
      put.send(new Uint8Array(100_000));
      using get = rawClient(server.url.href);
      get.send(requestHead(`GET ${at(id, "big")}`, { Authorization }));
      get.socket.once("data", () => get.socket.pause());
      expect(await get.status).toBe(200);
      const stage = "find /workspace -name '.cprg-stage-*' -size +0";
      await until(
        "the upload is under way",
        async () => (await server.sh(id, stage)).stdout !== "",
      );
      const ended = await server.ask(`/v1/sandboxes/${id}`, { method: "DELETE" });
      expect(ended.json).toMatchObject({ status: "ended", reason: "user" });
      expect(await put.status).toBe(409);
    },
    // Well below the time that the end of a sandbox gives to what does not stop.
    10_000,
  );

  host.test(
    "an upload that fails is answered though its client sends no more",
    async () => {
      const id = await server.open({ limits: { disk_mb: 8, file_mb: 64 } });
      using put = rawClient(server.url.href);
      const headers = { Authorization: `Bearer ${KEY_A}`, "Content-Length": 32 * 1024 * 1024 };
      put.send(requestHead(`PUT ${at(id, "in")}`, headers));
      put.send(new Uint8Array(9 * 1024 * 1024));
      expect(await put.status).toBe(507);
    },
    10_000,
  );

  host.test("a thousand hostile names go out and in again", async () => {
    const id = await server.open();
    const code = [
      "import os, random",
      "random.seed(7)",
      "alphabet = [chr(c) for c in list(range(1, 47)) + list(range(48, 127))] + ['é', '\\u202e', '\\U0001f600', '\\ufeff', '\\u0301']",
      "os.mkdir('t')",
      "made = 0",
      "while made < 1000:",
      "    name = ''.join(random.choice(alphabet) for _ in range(random.randint(1, 60)))",
      "    if name in ('.', '..') or len(name.encode()) > 250 or os.path.lexists('t/' + name): continue",
      "    kind = made % 3",
      "    if kind == 0: open('t/' + name, 'w').write(name)",
      "    elif kind == 1: os.mkdir('t/' + name)",
      "    else: os.symlink(name, 't/' + name)",
      "    made += 1",
    ].join("\n");
    const made = await server.ask(`/v1/sandboxes/${id}/execs`, {
      body: { argv: [PYTHON, "-c", code] },
    });
    expect(made.json).toMatchObject({ exit_code: 0, stderr: "" });
    const got = await fetch(new URL(`${at(id, "t")}?format=tar`, server.url), {
      headers: { Authorization: `Bearer ${KEY_A}` },
    });
    const body = new Uint8Array(await got.arrayBuffer());
    const put = await server.ask(at(id, "u"), { method: "PUT", body, headers: TAR });
    expect([put.status, put.text]).toEqual([204, ""]);
    const same = await server.sh(id, "diff -r --no-dereference t u && ls -A u | wc -l");
    expect(same).toMatchObject({ exit_code: 0, stderr: "" });
    // Names in other bytes cannot be told in JSON or tar: it says so and sends no half a tree.
    await server.sh(id, "mkdir v; touch $'v/\\xff'");
    const broken = server.ask(`${at(id, "v")}?format=tar`).then(
      () => "whole",
      () => "broken off",
    );
    expect(await broken).toBe("broken off");
  });
});
