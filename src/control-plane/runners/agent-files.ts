/**
 * Files of a lease by programs inside it: every lease has `invoke`, whatever else it can do. What
 * comes back is hostile and bounded.
 */

import { CprgError, invalid } from "../../core/errors.ts";
import type { SandboxLease } from "../../provider/contract.ts";

/** Bytes of a file that can be written or edited at once. */
export const EDIT_BYTES_MAX = 1024 * 1024;

const SHELL = "/bin/sh";
/**
 * A dot before the content keeps a byte order mark, which a decoder would take away, and tells an
 * empty file from none.
 */
const READ = 'exec < "$1" && printf . && tail -c "+$2" | head -c "$3"';
const WRITE = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"';

/** How one of them is bounded. */
export interface FileCall {
  readonly signal: AbortSignal;
  readonly deadlineMs: number;
}

/** A part of a file as text; bytes that are no UTF-8 are replaced. */
export async function readPart(
  lease: SandboxLease,
  {
    path,
    offset,
    bytes,
  }: { readonly path: string; readonly offset: number; readonly bytes: number },
  call: FileCall,
): Promise<string> {
  checkPath(path);
  const text = await shell(lease, {
    ...call,
    words: [READ, path, String(offset + 1), String(bytes)],
    what: `read ${path}`,
    retain: bytes + 1,
  });
  return text.slice(1);
}

/** Makes a file, and the directories above it. */
export async function writeWhole(
  lease: SandboxLease,
  { path, content }: { readonly path: string; readonly content: string },
  call: FileCall,
): Promise<void> {
  checkPath(path);
  const stdin = new TextEncoder().encode(content);
  if (stdin.length > EDIT_BYTES_MAX) throw tooLarge(path);
  await shell(lease, { ...call, words: [WRITE, path], what: `write ${path}`, retain: 0, stdin });
}

/** Replaces a text that occurs once in a file. Returns how many characters it has now. */
export async function replaceOnce(
  lease: SandboxLease,
  { path, old, text }: { readonly path: string; readonly old: string; readonly text: string },
  call: FileCall,
): Promise<number> {
  if (old === "") throw invalid("old", "Cannot replace nothing: old is empty");
  const before = await readPart(lease, { path, offset: 0, bytes: EDIT_BYTES_MAX + 1 }, call);
  if (Buffer.byteLength(before) > EDIT_BYTES_MAX) throw tooLarge(path);
  if (before.includes("\ufffd")) {
    throw invalid("path", `Cannot edit ${path}: it is no UTF-8 text`, "Use exec");
  }
  const at = before.indexOf(old);
  if (at < 0) throw invalid("old", `Cannot edit ${path}: old does not occur in it`);
  if (before.includes(old, at + 1)) {
    throw invalid("old", `Cannot edit ${path}: old occurs more than once`, "Give more around it");
  }
  const content = before.slice(0, at) + text + before.slice(at + old.length);
  await writeWhole(lease, { path, content }, call);
  return content.length;
}

interface ShellCall extends FileCall {
  /** A script, then its arguments. */
  readonly words: readonly [string, ...string[]];
  readonly what: string;
  readonly retain: number;
  readonly stdin?: Uint8Array;
}

async function shell(lease: SandboxLease, { words, what, ...bounds }: ShellCall): Promise<string> {
  const [script, ...rest] = words;
  const { status, stdout, stderr } = await lease.invoke({
    executable: SHELL,
    arguments: ["-c", script, "sh", ...rest],
    ...bounds,
  });
  if (status === 0) return stdout;
  throw new CprgError(
    "failed_precondition",
    `Cannot ${what}: ${stderr.trim() || `exit ${status}`}`,
  );
}

function checkPath(path: string): void {
  if (path !== "" && !path.includes("\0")) return;
  throw invalid("path", "Cannot use path: it is empty or has a NUL");
}

function tooLarge(path: string): CprgError {
  const message = `Cannot write ${path}: more than ${EDIT_BYTES_MAX} bytes`;
  return new CprgError("invalid_argument", message, { hint: "Use exec" });
}
