import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseServer } from "../../../src/cli/client.ts";
import { exitCodeOfError } from "../../../src/cli/exit-code.ts";
import { saveExport, writeWhole } from "../../../src/cli/save-export.ts";
import { CprgError } from "../../../src/core/errors.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "cprg-save-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

test("writeWhole() writes chunks in order and replaces what was there", async () => {
  const path = join(folder, "a");
  writeFileSync(path, "a longer text than the new one");
  await writeWhole(path, async (write) => {
    await write(Buffer.from("one "));
    await write(Buffer.from("two"));
  });
  expect(readFileSync(path, "utf8")).toBe("one two");
});

test("writeWhole() leaves nothing when it fails, and what was there as it was", async () => {
  const path = join(folder, "a");
  const before = readFileSync(path, "utf8");
  const failing = writeWhole(path, async (write) => {
    await write(Buffer.from("half"));
    throw new Error("broke off");
  });
  await expect(failing).rejects.toThrow(`Cannot write "${path}"`);
  expect(readFileSync(path, "utf8")).toBe(before);
  expect(readdirSync(folder)).toEqual(["a"]);
});

test("writeWhole() writes to a device and does not replace it", async () => {
  await writeWhole("/dev/null", async (write) => await write(Buffer.from("x")));
  expect(await Bun.file("/dev/null").text()).toBe("");
});

test("saveExport() names the file that takes no more, not the server", async () => {
  const fetch = () => new Response("x".repeat(10_000));
  const server = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch });
  const access = { url: parseServer(server.url.origin), key: null };
  const failed = await saveExport(access, "id", "/dev/full").catch((error: unknown) => error);
  await server.stop(true);
  if (!CprgError.is(failed)) throw new Error(`it ended with ${String(failed)}`);
  expect(failed.message).toBe('Cannot write "/dev/full": ENOSPC');
  expect(exitCodeOfError(failed)).toBe(1);
});

test("writeWhole() names a directory that is not there", async () => {
  const path = join(folder, "none", "a");
  await expect(writeWhole(path, async () => undefined)).rejects.toThrow("ENOENT");
});
