/**
 * Which repositories a claim may name. Everything here ends up as an operand of git: schemes that run
 * programs (`ext::`), local paths and words that begin with a dash never get that far.
 */

import { invalid } from "./errors.ts";

const URL_CHARS_MAX = 2048;
const REF_CHARS_MAX = 256;
/** scp-like: `user@host:path` (git-clone(1), "Git URLs"); the host begins with no dash. */
const SCP_LIKE = /^[A-Za-z0-9_][A-Za-z0-9._-]*@[A-Za-z0-9][A-Za-z0-9.-]*:(?!\/\/)[^\s]+$/;
const PRINTABLE = /^[\x21-\x7e]+$/;
/** What git-check-ref-format(1) forbids anywhere in a name. */
const FORBIDDEN_IN_REF = ["..", "@{", "//", "/.", ".lock/"];

/** https or ssh. @throws CprgError `invalid_argument` */
export function checkRepositoryUrl(url: string): void {
  const isShort = url.length <= URL_CHARS_MAX && PRINTABLE.test(url);
  if (isShort && (isUrl(url) || SCP_LIKE.test(url))) return;
  throw invalid(
    "repo_url",
    "Cannot use repo_url: neither https://HOST/PATH nor ssh://[USER@]HOST/PATH nor USER@HOST:PATH",
    "Credentials go into the claim's environment, not into the URL",
  );
}

function isUrl(text: string): boolean {
  if (!/^(https|ssh):\/\//.test(text) || !URL.canParse(text)) return false;
  const { hostname, password, username, protocol, pathname } = new URL(text);
  const hasSecret = password !== "" || (protocol === "https:" && username !== "");
  // A host or user that begins with a dash would be an option of ssh.
  const isPlain = /^[A-Za-z0-9[]/.test(hostname) && !username.startsWith("-");
  return isPlain && !hasSecret && pathname.length > 1 && !pathname.startsWith("/-");
}

/** A branch, tag or commit, as git-check-ref-format(1). @throws CprgError `invalid_argument` */
export function checkRef(ref: string): void {
  const isName =
    ref.length <= REF_CHARS_MAX &&
    PRINTABLE.test(ref) &&
    !/^[-/.]|[/.]$|\.lock$|[~^:?*[\\]/.test(ref) &&
    ref !== "@" &&
    !FORBIDDEN_IN_REF.some((part) => ref.includes(part));
  if (!isName) throw invalid("ref", "Cannot use ref: not the name of a branch, tag or commit");
}
