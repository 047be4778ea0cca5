// Compiles floor.c and drives it: one sample in milliseconds for each call.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A floor program that waits to be asked. */
export interface Floor extends Disposable {
  /** Takes one sample. */
  sample(): Promise<number>;
}

/** Builds floor.c; the result is removed when it is disposed of. */
export function buildFloor(): Disposable & { readonly path: string } {
  const folder = mkdtempSync(join(tmpdir(), "cprg-floor-"));
  const path = join(folder, "floor");
  const source = join(import.meta.dir, "floor.c");
  const flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"];
  const built = Bun.spawnSync(["cc", ...flags, "-o", path, source], { stderr: "inherit" });
  if (built.exitCode !== 0) throw new Error("cc cannot build floor.c");
  return { path, [Symbol.dispose]: () => rmSync(folder, { recursive: true }) };
}

/** Starts `floor MODE ...`. */
export function startFloor(path: string, words: readonly string[]): Floor {
  const child = Bun.spawn([path, ...words], { stdin: "pipe", stdout: "pipe", stderr: "inherit" });
  const reader = child.stdout.getReader();
  const decoder = new TextDecoder();
  let text = "";
  return {
    async sample() {
      child.stdin.write("x");
      await child.stdin.flush();
      while (!text.includes("\n")) {
        const { value, done } = await reader.read();
        if (done) throw new Error(`floor ${words.join(" ")} ended`);
        text += decoder.decode(value, { stream: true });
      }
      const end = text.indexOf("\n");
      const ns = Number(text.slice(0, end));
      text = text.slice(end + 1);
      return ns / 1e6;
    },
    [Symbol.dispose]: () => child.kill(),
  };
}
