/**
 * What a sandbox must not leave behind on the host. A namespace lives only as long as a process, a
 * descriptor or a mount is in it, and all of those are here.
 */
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { scratch } from "./native.ts";

/** Everything there is, one line each. */
export type HostState = readonly string[];

function children(): string[] {
  return readdirSync("/proc/self/task").flatMap((thread) =>
    readFileSync(`/proc/self/task/${thread}/children`, "utf8")
      .split(" ")
      .filter((pid) => pid !== "")
      .map((pid) => `child ${readFileSync(`/proc/${pid}/comm`, "utf8").trim()}`),
  );
}

/** Descriptors by what they are, without the listing's own and without numbers. */
function descriptors(): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      return [`descriptor ${readlinkSync(`/proc/self/fd/${fd}`).replace(/\[\d.*|\d+.*/, "")}`];
    } catch {
      return []; // the descriptor of the listing, closed again
    }
  });
}

/** Mounts of this process, by where they are. */
function mounts(): string[] {
  const lines = readFileSync("/proc/self/mountinfo", "utf8").trimEnd().split("\n");
  return lines.map((line) => `mount ${line.split(" ")[4]}`);
}

export function hostState(): HostState {
  const files = readdirSync(scratch()).map((name) => `file ${name}`);
  return [...children(), ...descriptors(), ...mounts(), ...files];
}

/** What is there now and was not before; what the runtime closed meanwhile does not matter. */
export function leftovers(before: HostState): string[] {
  const unmatched = [...before];
  return hostState().filter((line) => {
    const index = unmatched.indexOf(line);
    if (index >= 0) unmatched.splice(index, 1);
    return index < 0;
  });
}
