/**
 * The program that looks at files of a sandbox, from inside and with the rights of its programs. It
 * gets one request in a variable and prints one answer. What it prints is the sandbox's word and
 * believed no further than that.
 */

/** What it is asked. */
export interface InsideRequest {
  readonly op: "check" | "stat" | "list" | "rename" | "makeDir" | "removeOne";
  /** Directories that a path must stay in. */
  readonly roots: readonly string[];
  /** Absolute. */
  readonly path: string;
  /** `rename`: the new path. */
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

/** JavaScript, for the runtime that the engine binds into every sandbox. */
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
  check: (at) => ({}),
  stat: (at) => statOf(at, path.basename(at)),
  list: (at) => {
    const after = Buffer.from(asked.after);
    const names = fs.readdirSync(at).map((name) => Buffer.from(name))
      .filter((name) => after.length === 0 || Buffer.compare(name, after) > 0).sort(Buffer.compare);
    const entries = names.slice(0, asked.limit).map(String).flatMap((name) => {
      try { return [statOf(path.join(at, name), name)]; } catch { return []; }
    });
    return { entries, more: names.length > asked.limit };
  },
  rename: (at) => { fs.renameSync(at, place(asked.to)); return {}; },
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
