// The cases of selftest.py by name, as its files have them.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Whose cases are of the reference's own parts, with no worker beside them. */
const INSIDE = "selftest_inside.py";

function casesOf(files: readonly string[]): readonly string[] {
  return files.flatMap((file) => {
    const source = readFileSync(join(import.meta.dir, file), "utf8");
    return [...source.matchAll(/^@case\nasync def (\w+)\(/gm)].map(([, name = ""]) => name);
  });
}

const files = readdirSync(import.meta.dir).filter((file) => /^selftest_\w+\.py$/.test(file));

/** What any worker has to do. */
export const WORKER_CASES = casesOf(files.filter((file) => file !== INSIDE));
/** The reference's. */
export const ALL_CASES = [...WORKER_CASES, ...casesOf([INSIDE])];
