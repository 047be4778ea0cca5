import { afterAll, beforeAll, expect, test } from "bun:test";
import { randomBytes } from "node:crypto";
import {
  chmodSync,
  existsSync,
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
import { requireHost } from "../helpers/host.ts";
import { ENV, finish, PYTHON, useEngine } from "./test-engine.ts";

const host = requireHost({ sandbox: true });

host.describe("files", () => {
  const bench = useEngine();
  let top = "";
  beforeAll(() => {
    top = mkdtempSync(join(tmpdir(), "cprg-test-files-"));
  });
  afterAll(() => rmSync(top, { recursive: true, force: true }));

  const sh = async (lease: Awaited<ReturnType<typeof bench.open>>, script: string) => {
    const result = await lease.invoke({ executable: "sh", arguments: ["-c", script] });
    if (result.status !== 0) throw new Error(`${script}: ${result.stderr}`);
    return result.stdout;
  };

  test("a file from memory arrives with its bytes and mode, and makes its directories", async () => {
    const lease = await bench.open();
    const content = randomBytes(300_000);
    await lease.putFile("/workspace/a/b/c.bin", content, 0o750);
    expect(await sh(lease, "stat -c '%a %s %U' a/b/c.bin; sha256sum < a/b/c.bin")).toBe(
      `750 300000 agent\n${new Bun.CryptoHasher("sha256").update(content).digest("hex")}  -\n`,
    );
    await lease.putFile("/workspace/a/b/c.bin", Buffer.from(""));
    expect(await sh(lease, "stat -c '%a %s' a/b/c.bin; ls -A a/b")).toBe("644 0\nc.bin\n");
  });

  test("paths that lead out of the workspace or out of what is writable are refused", async () => {
    const lease = await bench.open();
    const put = (path: string) =>
      lease.putFile(path, Buffer.from("x")).catch((error: unknown) => error);
    for (const path of ["", "../x", "a/../../x", "a\0b"]) {
      expect([path, await put(path)]).toMatchObject([path, { code: "invalid_argument" }]);
    }
    for (const path of ["/etc/x", "/usr/bin/x", "/x", "/proc/x", "/workspace"]) {
      const error = await put(path);
      expect([path, (error as Error)?.message]).toEqual([path, expect.stringContaining("Cannot")]);
    }
    expect(await sh(lease, "find / -xdev -name x 2>/dev/null; ls -A /workspace")).toBe("");
  });

  test("odd names are names", async () => {
    const lease = await bench.open();
    for (const name of ["$(id)", "a b", "new\nline", "-rf", "ü\u{1f600}", "`x`", "\\", "..."]) {
      await lease.putFile(name, Buffer.from(name));
    }
    const listed = await sh(
      lease,
      "python3 -c 'import os,json; print(json.dumps(sorted(os.listdir())))'",
    );
    expect(JSON.parse(listed)).toHaveLength(8);
  });

  test("a file does not follow a link that a program has planted", async () => {
    const lease = await bench.open();
    await sh(lease, "echo old > /tmp/target; ln -s /tmp/target planted");
    await lease.putFile("/workspace/planted", Buffer.from("new"));
    expect(await sh(lease, "cat /tmp/target planted; test -L planted || echo plain")).toBe(
      "old\nnewplain\n",
    );
  });

  test("a tree goes in and comes out with bytes, modes and links", async () => {
    const source = join(top, "tree");
    mkdirSync(join(source, "sub", "deep"), { recursive: true });
    mkdirSync(join(source, "empty"));
    const binary = randomBytes(1_000_000);
    writeFileSync(join(source, "sub", "binary"), binary);
    writeFileSync(join(source, "sub", "deep", "script"), "#!/bin/sh\n", { mode: 0o755 });
    writeFileSync(join(source, "zero"), "");
    symlinkSync("sub/binary", join(source, "link"));
    symlinkSync("nowhere", join(source, "dangling"));
    chmodSync(join(source, "empty"), 0o500);

    const lease = await bench.open();
    await lease.upload(source, "/workspace/in/tree");
    expect(await sh(lease, "cd in/tree && find . -printf '%y %m %P %l\\n' | sort")).toBe(
      [
        "d 500 empty ",
        "d 755  ",
        "d 755 sub ",
        "d 755 sub/deep ",
        "f 644 sub/binary ",
        "f 644 zero ",
        "f 755 sub/deep/script ",
        "l 777 dangling nowhere",
        "l 777 link sub/binary",
        "",
      ].join("\n"),
    );
    const target = join(top, "out", "tree");
    await lease.download("/workspace/in/tree", target);
    expect(readFileSync(join(target, "sub", "binary")).equals(binary)).toBe(true);
    expect(lstatSync(join(target, "sub", "deep", "script")).mode & 0o777).toBe(0o755);
    expect(lstatSync(join(target, "empty")).mode & 0o777).toBe(0o500);
    expect(readlinkSync(join(target, "link"))).toBe("sub/binary");
    expect(readlinkSync(join(target, "dangling"))).toBe("nowhere");
    expect(readdirSync(join(top, "out"))).toEqual(["tree"]);
  });

  test("a single file and a single link go both ways, and replace what was there", async () => {
    const lease = await bench.open();
    const source = join(top, "one");
    writeFileSync(source, "first");
    await lease.upload(source, "/workspace/one");
    writeFileSync(source, "second", { mode: 0o600 });
    await lease.upload(source, "/workspace/one");
    const target = join(top, "one-back");
    writeFileSync(target, "older");
    await lease.download("one", target);
    expect(readFileSync(target, "utf8")).toBe("second");
    mkdirSync(join(top, "was-directory", "x"), { recursive: true });
    await lease.download("one", join(top, "was-directory"));
    expect(readFileSync(join(top, "was-directory"), "utf8")).toBe("second");
  });

  test("a tree put on the workspace itself joins what is there", async () => {
    const source = join(top, "joining");
    mkdirSync(join(source, "sub"), { recursive: true });
    writeFileSync(join(source, "sub", "new"), "new");
    const lease = await bench.open();
    await sh(lease, "mkdir sub; echo old > sub/old");
    await lease.upload(source, "/workspace");
    expect(await sh(lease, "ls sub")).toBe("new\nold\n");
  });

  test("links that lead out are refused on the way out, and leave nothing", async () => {
    const lease = await bench.open();
    const out = join(top, "links");
    for (const [index, link] of ["/etc/passwd", "../up", "sub/../../up"].entries()) {
      await sh(lease, `mkdir -p t${index}/sub; echo fine > t${index}/a; ln -s ${link} t${index}/z`);
      const error = await lease
        .download(`t${index}`, join(out, `t${index}`))
        .catch((thrown: unknown) => thrown);
      expect([link, error]).toMatchObject([link, { reason: "LINK_ESCAPES" }]);
    }
    await sh(lease, "ln -s /etc/passwd single");
    expect(
      await lease.download("single", join(out, "single")).catch((thrown: unknown) => thrown),
    ).toMatchObject({ reason: "LINK_ESCAPES" });
    expect(readdirSync(out)).toEqual([]);
  });

  test("special files neither block nor come along", async () => {
    const lease = await bench.open();
    await sh(
      lease,
      "mkdir s; mkfifo s/fifo; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('s/socket')\"; echo x > s/plain",
    );
    const target = join(top, "special");
    await lease.download("s", target, { deadlineMs: 20_000 }).catch(() => undefined);
    if (existsSync(target)) expect(readdirSync(target)).toEqual(["plain"]);
  });

  test("what is missing, on either side, is said and nothing is left", async () => {
    const lease = await bench.open();
    expect(
      await lease.upload(join(top, "absent"), "x").catch((error: unknown) => error),
    ).toMatchObject({ code: "not_found" });
    const target = join(top, "absent-back");
    expect(await lease.download("absent", target).catch((error: unknown) => error)).toMatchObject({
      code: "not_found",
      reason: "PATH_NOT_FOUND",
    });
    expect(existsSync(target)).toBe(false);
  });

  test("a full disk inside is an error that says so, and leaves nothing half-made", async () => {
    const lease = await bench.open({ disk_mb: 2 });
    const error = await lease
      .putFile("/workspace/big", new Uint8Array(3 << 20))
      .catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "resource_exhausted", reason: "SANDBOX_FULL" });
    expect(await sh(lease, "ls -A /workspace")).toBe("");
  });

  test("signal and deadline stop a transfer, and the sandbox stays usable", async () => {
    const source = join(top, "large");
    writeFileSync(source, new Uint8Array(64 << 20));
    const lease = await bench.open({ mem_mb: 512, disk_mb: 200, file_mb: 200 });
    const controller = new AbortController();
    const cancelled = lease
      .upload(source, "/workspace/large", { signal: controller.signal })
      .catch((error: unknown) => error);
    setImmediate(() => controller.abort());
    expect(await cancelled).toMatchObject({ code: "canceled" });
    expect(
      await lease.upload(source, "large", { deadlineMs: 1 }).catch((error: unknown) => error),
    ).toMatchObject({ code: "deadline_exceeded" });
    expect(await sh(lease, "ls -A /workspace")).toBe("");
    await sh(lease, "head -c 64m /dev/zero > large");
    const target = join(top, "large-back");
    expect(
      await lease.download("large", target, { deadlineMs: 1 }).catch((error: unknown) => error),
    ).toMatchObject({ code: "deadline_exceeded" });
    expect(
      readdirSync(top).filter((name) => name.includes("stage") || name === "large-back"),
    ).toEqual([]);
    await lease.download("large", target);
    expect(lstatSync(target).size).toBe(64 << 20);
  });

  test("memory that files take is the sandbox's", async () => {
    const lease = await bench.open({ mem_mb: 64, disk_mb: 64 });
    const before = process.memoryUsage.rss();
    await lease.putFile("/workspace/big", new Uint8Array(32 << 20));
    const exec = await lease.exec({ executable: PYTHON, arguments: ["-c", ""], variables: ENV });
    const { outcome } = await finish(exec);
    expect(outcome.usage?.memory_peak_bytes).toBeGreaterThan(32 << 20);
    expect(process.memoryUsage.rss() - before).toBeLessThan(96 << 20);
  });
});

host.describe("artifacts", () => {
  const bench = useEngine();

  const run = async (script: string) => {
    const lease = await bench.open();
    const { status, stderr } = await lease.invoke({
      executable: "sh",
      arguments: ["-c", script],
    });
    expect([status, stderr]).toEqual([0, ""]);
    return lease;
  };
  const read = async (artifact: { read(): AsyncIterable<Uint8Array> }): Promise<string> => {
    const parts: Uint8Array[] = [];
    for await (const bytes of artifact.read()) parts.push(bytes);
    return Buffer.concat(parts).toString();
  };

  test("are the regular files beneath /workspace/out", async () => {
    const lease = await run(
      "mkdir -p out/sub/deep; echo one > out/one; echo two > out/sub/deep/two; chmod 700 out/one; mkdir out/empty; echo no > outside",
    );
    const artifacts = await lease.artifacts();
    expect(artifacts.map(({ path, size, mode }) => [path, size, mode])).toEqual([
      ["one", 4, 0o700],
      ["sub/deep/two", 4, 0o644],
    ]);
    expect(await Promise.all(artifacts.map(read))).toEqual(["one\n", "two\n"]);
  });

  test("never follow a link, whatever it points to", async () => {
    const lease = await run(
      "mkdir out; ln -s /etc/passwd out/file; ln -s / out/root; ln -s ../outside out/near; ln -s /proc/1/root out/magic; mkdir outside; echo secret > outside/x",
    );
    expect(await lease.artifacts()).toEqual([]);
  });

  test("are none where out is a link, a file or missing", async () => {
    for (const script of ["ln -s /etc out", "echo x > out", "true", "mkfifo out"]) {
      const lease = await run(script);
      expect([script, await lease.artifacts()]).toEqual([script, []]);
    }
  });

  test("leave out FIFOs, sockets and what the server may not open", async () => {
    const lease = await run(
      "mkdir out; mkfifo out/fifo; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('out/socket')\"; echo x > out/closed; chmod 000 out/closed",
    );
    const artifacts = await lease.artifacts();
    expect(artifacts.map(({ path }) => path)).toEqual(["closed"]);
    expect(await read(artifacts[0] as never)).toBe("x\n");
  });

  test("are bounded in number and depth", async () => {
    const lease = await bench.open({ inodes: 20_000 });
    await lease.invoke({
      executable: PYTHON,
      arguments: [
        "-c",
        "import os\nos.mkdir('out')\nfor i in range(10001): open(f'out/{i}', 'w').close()",
      ],
    });
    expect(await lease.artifacts().catch((error: unknown) => error)).toMatchObject({
      code: "resource_exhausted",
    });
    const deep = await run(`mkdir -p out/${"d/".repeat(40)}`);
    expect(await deep.artifacts().catch((error: unknown) => error)).toMatchObject({
      code: "resource_exhausted",
    });
  });

  test("can be had only when nothing runs", async () => {
    const lease = await bench.open();
    const exec = await lease.exec({ executable: "sleep", arguments: ["100"], variables: ENV });
    expect(await lease.artifacts().catch((error: unknown) => error)).toMatchObject({
      code: "failed_precondition",
    });
    exec.kill("user");
    await exec.outcome;
    expect(await lease.artifacts()).toEqual([]);
  });

  test("a file that was exchanged for a link after it was listed is not read", async () => {
    const lease = await run("mkdir out; echo mine > out/x; echo secret > /tmp/secret");
    const [artifact] = await lease.artifacts();
    await lease.invoke({ executable: "sh", arguments: ["-c", "ln -sf /tmp/secret out/x"] });
    const text = await read(artifact as never).catch((error: unknown) => error);
    expect(text).toMatchObject({ code: "not_found" });
  });
});
