/**
 * The program that looks at files of a sandbox, from inside and with the rights of its programs. It
 * gets one request in a variable and prints one answer. What it prints is the sandbox's word and
 * believed no further than that.
 */

import { ENTRY_BYTES, PAGE_BYTES_MAX } from "./list-page.ts";
import { STAGE_PREFIX } from "./tree-put.ts";

/** What it is asked. */
export interface InsideRequest {
  readonly op: "check" | "stat" | "list" | "rename" | "merge" | "makeDir" | "removeOne";
  /** Directories that a path must stay in. */
  readonly roots: readonly string[];
  /** Absolute. */
  readonly path: string;
  /** `rename`, `merge`: the new path, and the directory that is merged into. */
  readonly to?: string;
  /** `check`: refuses a link at the end. `list`, `makeDir`. */
  readonly isLinkRefused?: boolean;
  readonly parents?: boolean;
  readonly mode?: number;
  readonly after?: string;
  readonly limit?: number;
}

/** Name of the variable that holds the request. */
export const REQUEST_VARIABLE = "CPRG_REQUEST";

/** JavaScript, for the runtime that the engine binds into every sandbox; what it keeps is the rule of `list-page.ts` and `tree-put.ts`. */
export const INSIDE_PROGRAM = `
const fs = require("node:fs");
const path = require("node:path");
const asked = JSON.parse(process.env.${REQUEST_VARIABLE});
const fail = (code) => { throw Object.assign(new Error(code), { code }); };
const isWithin = (real) => asked.roots.some((root) => real === root || real.startsWith(root + "/"));
const realDirectory = (directory) => {
  if (asked.parents && !fs.existsSync(directory)) {
    const made = path.join(realDirectory(path.dirname(directory)), path.basename(directory));
    fs.mkdirSync(made);
  }
  const real = fs.realpathSync(directory);
  return isWithin(real) ? real : fail("EXDEV");
};
const place = (given) => {
  if (asked.roots.includes(given)) return given;
  return path.join(realDirectory(path.dirname(given)), path.basename(given));
};
const statOf = (at, name) => {
  const status = fs.lstatSync(at);
  const isLink = status.isSymbolicLink();
  const type = status.isFile() ? "file" : status.isDirectory() ? "directory" : isLink ? "link" : "other";
  return { name, type, size: status.size, mode: status.mode & 0o777,
    modifiedMs: Math.floor(status.mtimeMs), linkTarget: isLink ? fs.readlinkSync(at) : "" };
};
const operations = {
  check: (at) => {
    const there = fs.lstatSync(at, { throwIfNoEntry: false });
    return { isThere: there !== undefined, isDirectory: there?.isDirectory() ?? false };
  },
  stat: (at) => statOf(at, path.basename(at)),
  list: (at) => {
    const after = Buffer.from(asked.after);
    const names = fs.readdirSync(at, { encoding: "buffer" })
      .filter((name) => after.length === 0 || Buffer.compare(name, after) > 0).sort(Buffer.compare);
    const entries = [];
    let bytes = 0;
    for (const name of names) {
      const text = String(name);
      if (Buffer.compare(Buffer.from(text), name) !== 0 || text.startsWith("${STAGE_PREFIX}")) continue;
      let entry;
      try { entry = statOf(path.join(at, text), text); } catch { continue; }
      bytes += ${ENTRY_BYTES} + Buffer.byteLength(text) + Buffer.byteLength(entry.linkTarget);
      if (entries.length >= asked.limit || bytes > ${PAGE_BYTES_MAX}) return { entries, more: true };
      entries.push(entry);
    }
    return { entries, more: false };
  },
  rename: (at) => {
    const to = place(asked.to);
    const moved = fs.lstatSync(at);
    const old = fs.lstatSync(to, { throwIfNoEntry: false });
    if (old && (old.isDirectory() || moved.isDirectory())) fail("EEXIST");
    fs.renameSync(at, to);
    return {};
  },
  merge: (at) => {
    const each = (from, to, act) => {
      for (const name of fs.readdirSync(from)) {
        const [inner, outer] = [path.join(from, name), path.join(to, name)];
        const isDirectory = fs.lstatSync(inner).isDirectory();
        const old = fs.lstatSync(outer, { throwIfNoEntry: false });
        if (isDirectory && old?.isDirectory()) each(inner, outer, act);
        else act(inner, outer, isDirectory, old);
      }
    };
    const to = place(asked.to);
    each(at, to, (_from, _to, isDirectory, old) => {
      if (old && old.isDirectory() !== isDirectory) fail(isDirectory ? "EEXIST" : "EISDIR");
    });
    each(at, to, (from, target) => fs.renameSync(from, target));
    return {};
  },
  makeDir: (at) => {
    const there = fs.lstatSync(at, { throwIfNoEntry: false });
    if (there && asked.parents && there.isDirectory()) return {};
    fs.mkdirSync(at);
    fs.chmodSync(at, asked.mode);
    return {};
  },
  removeOne: (at) => {
    if (fs.lstatSync(at).isDirectory()) fs.rmdirSync(at); else fs.unlinkSync(at);
    return {};
  },
};
let answer;
try {
  const at = place(asked.path);
  if (asked.isLinkRefused && fs.lstatSync(at, { throwIfNoEntry: false })?.isSymbolicLink()) fail("ELOOP");
  answer = { ok: operations[asked.op](at), path: at };
} catch (error) {
  answer = { code: error.code ?? "EIO" };
}
process.stdout.write(JSON.stringify(answer));
`;
