/**
 * Small files of a lease as part of a result. Programs inside find and read them, with the rights of
 * the claim alone, so that no name or link leads anywhere that the task could not go itself.
 */

import { CprgError } from "../../core/errors.ts";
import type { SandboxLease } from "../../provider/contract.ts";

/** Files that are collected, and bytes of one; what is longer is cut. */
export const COLLECT_FILES_MAX = 100;
export const COLLECT_FILE_BYTES_MAX = 128 * 1024;
/** Bytes of names and contents as they stand in the result; files that do not fit are left out. */
export const COLLECT_BYTES_MAX = 384 * 1024;
/** Bytes that are taken from the lease: names and contents in base64. What comes after is left out. */
const STREAM_BYTES_MAX = 2 * 1024 * 1024;

/** A file of the result. */
export interface CollectedFile {
  /** Relative to the root; hostile text. */
  readonly path: string;
  readonly encoding: "utf8" | "base64";
  readonly content: string;
  /** Only its beginning is here. */
  readonly truncated: boolean;
}

/**
 * Gives name, NUL, content in base64, NUL for each file. Names go from program to program between
 * NULs, begin with `./`, and are never part of a command line that is read.
 */
const SCRIPT = `
for tool in find sort xargs head base64 tr; do
  command -v "$tool" >/dev/null || { echo "$tool is missing" >&2; exit 127; }
done
each=$1 all=$2
shift 2
find . -type f "$@" -print0 2>/dev/null | LC_ALL=C sort -z | xargs -0 -r sh -c '
  each=$1
  shift
  for file; do
    [ -r "$file" ] || continue
    printf "%s\\0" "$file"
    head -c "$each" -- "$file" 2>/dev/null | base64 | tr -d "\\n"
    printf "\\0"
  done' sh "$each" 2>/dev/null | head -c "$all"
`;

/** Which files. */
export interface CollectOptions {
  /** As `find -path` takes them, relative to the root. */
  readonly patterns: readonly string[];
  readonly signal: AbortSignal;
}

/**
 * By name, byte by byte.
 *
 * @throws CprgError `failed_precondition` COLLECT_FAILED where the lease lacks a tool for it
 */
export async function collectFiles(
  lease: SandboxLease,
  { patterns, signal }: CollectOptions,
): Promise<readonly CollectedFile[]> {
  if (patterns.length === 0) return [];
  const files: CollectedFile[] = [];
  let bytes = 0;
  for (const file of filesOf(await readAll(lease, { patterns, signal }))) {
    const size = Buffer.byteLength(JSON.stringify(file));
    if (files.length === COLLECT_FILES_MAX || bytes + size > COLLECT_BYTES_MAX) continue;
    bytes += size;
    files.push(file);
  }
  return files;
}

async function readAll(lease: SandboxLease, { patterns, signal }: CollectOptions): Promise<string> {
  const wanted = patterns.flatMap((pattern) => ["-o", "-path", `./${pattern}`]).slice(1);
  const bounds = [`${COLLECT_FILE_BYTES_MAX + 1}`, `${STREAM_BYTES_MAX}`];
  const { status, stdout, stderr } = await lease.invoke({
    executable: "sh",
    arguments: ["-c", SCRIPT, "sh", ...bounds, "(", ...wanted, ")"],
    signal,
    retain: STREAM_BYTES_MAX,
  });
  if (status === 0) return stdout;
  throw new CprgError("failed_precondition", `Cannot collect files: ${stderr.trim().slice(-500)}`, {
    reason: "COLLECT_FAILED",
  });
}

function* filesOf(stream: string): Generator<CollectedFile> {
  // What follows the last NUL was cut.
  const fields = stream.split("\0").slice(0, -1);
  for (let at = 0; at + 1 < fields.length; at += 2) {
    const [name = "", base64 = ""] = fields.slice(at, at + 2);
    yield fileOf(name.replace(/^\.\//, ""), Buffer.from(base64, "base64"));
  }
}

function fileOf(path: string, bytes: Buffer): CollectedFile {
  const content = bytes.subarray(0, COLLECT_FILE_BYTES_MAX);
  const truncated = bytes.length > content.length;
  const text = content.toString("utf8");
  const isText = !text.includes("\0") && Buffer.from(text).equals(content);
  return isText
    ? { path, encoding: "utf8", content: text, truncated }
    : { path, encoding: "base64", content: content.toString("base64"), truncated };
}
