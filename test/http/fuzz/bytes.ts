// Bodies that are no JSON: bytes, and tars that can be unpacked, and such that are not whole.

import type { EntryPart } from "../../../src/provider/contract.ts";
import { writeTar } from "../../../src/sandbox/tar-writer.ts";
import type { Random } from "./random.ts";

/** A body with its headers. */
export interface RawBody {
  readonly body: Uint8Array;
  readonly headers: Record<string, string>;
  /** Parameters that do not go with it. */
  readonly without: readonly string[];
}

const TAR = "application/x-tar";
const BYTES_MAX = 2000;

async function* entries(): AsyncGenerator<EntryPart> {
  yield { type: "directory", mode: 0o755, path: "", size: 0 };
  yield { type: "file", mode: 0o644, path: "f", size: 3 };
  yield Buffer.from("abc");
  yield { type: "link", mode: 0o777, path: "l", size: 1 };
  yield Buffer.from("f");
}

const tar = Buffer.concat(
  await Array.fromAsync(writeTar(entries(), { name: "t", mtimeSeconds: 1 })),
);

/** A body of a media type. */
export function rawBody(type: string, random: Random): RawBody {
  const isTar = type === TAR;
  const body = isTar ? tar : randomBytes(random);
  return {
    body,
    headers: headersOf(type, body),
    without: isTar ? ["mode"] : ["merge", "links"],
  };
}

/** The same with some bytes changed, and some missing at its end. */
export function spoiltBytes(
  { body, headers }: { readonly body?: unknown; readonly headers?: Record<string, string> },
  random: Random,
): Pick<RawBody, "body" | "headers"> {
  const bytes = Buffer.from(body as Uint8Array);
  for (let left = random.whole(3); left > 0 && bytes.length > 0; left -= 1) {
    bytes[random.whole(bytes.length - 1)] = random.whole(255);
  }
  const spoilt = random.chance(0.5) ? bytes : bytes.subarray(0, random.whole(bytes.length));
  return { body: spoilt, headers: headersOf(headers?.["Content-Type"] ?? "", spoilt) };
}

function randomBytes(random: Random): Uint8Array {
  return Uint8Array.from({ length: random.whole(BYTES_MAX) }, () => random.whole(255));
}

/** Nobody says how long a request in memory is. */
function headersOf(type: string, body: Uint8Array): Record<string, string> {
  return { "Content-Type": type, "Content-Length": String(body.length) };
}
