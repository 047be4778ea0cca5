/** Run in a process of its own: hardens it and prints what the kernel then says of it. */
import { readFileSync } from "node:fs";
import { native, prctl } from "./native.ts";

const getDumpable = 3;

export function harden(): void {
  if (native.cprg_harden() < 0) {
    throw new Error("cprg_harden failed");
  }
  const core = readFileSync("/proc/self/limits", "utf8")
    .split("\n")
    .find((line) => line.startsWith("Max core"));
  process.stdout.write(`dumpable ${prctl(getDumpable, 0, 0, 0, 0)}\n${core?.trimEnd()}\n`);
}
