/** Rules for the files that a job brings along: where they may go, how many, how large. */

import { invalid } from "../core/errors.ts";
import type { JobFile } from "../core/job.ts";
import type { Limits } from "../core/limits.ts";
import { base64Bytes, checkCString, shown, utf8Bytes } from "../core/text-rules.ts";

/** Files of one job. */
export const FILES_MAX = 1000;
/** Bytes of a path (PATH_MAX of Linux, its NUL and the workspace's own path included). */
export const PATH_BYTES_MAX = 4096;
/** Bytes of one name in a path (NAME_MAX of Linux). */
export const NAME_BYTES_MAX = 255;
/** Names in a path. */
export const PATH_DEPTH_MAX = 64;

const WORKSPACE_BYTES = "/workspace/".length + 1;
const MIB = 1024 * 1024;

/**
 * Checks a job's files.
 *
 * @throws CprgError `invalid_argument` naming the file and field
 */
export function checkFiles(files: readonly JobFile[], limits: Limits): void {
  if (files.length > FILES_MAX) {
    throw invalid("files", `Cannot use files: ${files.length} of them, at most ${FILES_MAX}`);
  }
  const paths = new PathSet();
  let total = 0;
  for (const [index, file] of files.entries()) {
    const field = `files[${index}]`;
    checkPath(`${field}.path`, file.path);
    paths.add(`${field}.path`, file.path);
    const size = base64Bytes(`${field}.base64`, file.base64);
    if (size > limits.file_mb * MIB) {
      throw invalid(
        field,
        `Cannot use file "${shown(file.path)}": ${size} bytes, above limits.file_mb (${limits.file_mb})`,
      );
    }
    total += size;
  }
  if (total > limits.disk_mb * MIB) {
    throw invalid(
      "files",
      `Cannot use files: ${total} bytes together, above limits.disk_mb (${limits.disk_mb})`,
    );
  }
}

/**
 * Checks that no file takes the place of the code.
 *
 * @throws CprgError `invalid_argument` naming the file
 */
export function checkCodeFile(files: readonly JobFile[], fileName: string): void {
  for (const [index, { path }] of files.entries()) {
    if (path !== fileName && !path.startsWith(`${fileName}/`)) continue;
    throw invalid(
      `files[${index}].path`,
      `Cannot use path "${shown(path)}": ${fileName} is where the code goes`,
      "Give the file another name",
    );
  }
}

/** Relative, without empty names, `.` or `..`, within the kernel's bounds. */
function checkPath(field: string, path: string): void {
  const refuse = (why: string): never => {
    throw invalid(
      field,
      `Cannot use ${field} "${shown(path)}": ${why}`,
      "Paths are relative to /workspace",
    );
  };
  checkCString(field, path);
  if (path === "") refuse("it is empty");
  if (path.startsWith("/")) refuse("it is absolute");
  if (utf8Bytes(path) + WORKSPACE_BYTES > PATH_BYTES_MAX) refuse(`it is too long`);
  const names = path.split("/");
  if (names.length > PATH_DEPTH_MAX) refuse(`it is more than ${PATH_DEPTH_MAX} names deep`);
  for (const name of names) {
    if (name === "") refuse("it has an empty name");
    if (name === "." || name === "..") refuse(`it has the name "${name}"`);
    if (utf8Bytes(name) > NAME_BYTES_MAX) refuse(`it has a name above ${NAME_BYTES_MAX} bytes`);
  }
}

/** Paths seen so far: none twice, and none that is a directory of another. */
class PathSet {
  readonly #files = new Set<string>();
  readonly #directories = new Set<string>();

  add(field: string, path: string): void {
    if (this.#files.has(path)) {
      throw invalid(field, `Cannot use ${field} "${shown(path)}": another file has that path`);
    }
    const parents = parentsOf(path);
    if (this.#directories.has(path) || parents.some((parent) => this.#files.has(parent))) {
      throw invalid(
        field,
        `Cannot use ${field} "${shown(path)}": one file would have to be a directory of another`,
      );
    }
    this.#files.add(path);
    for (const parent of parents) this.#directories.add(parent);
  }
}

function parentsOf(path: string): string[] {
  const parents: string[] = [];
  for (let end = path.indexOf("/"); end >= 0; end = path.indexOf("/", end + 1)) {
    parents.push(path.slice(0, end));
  }
  return parents;
}
