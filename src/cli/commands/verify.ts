/** `cprg verify`: checks an exported event log. */

import type { KeyObject } from "node:crypto";
import { type FileHandle, open, readFile } from "node:fs/promises";
import { join } from "node:path";
import { CprgError } from "../../core/errors.ts";
import { parsePublicKey, type VerifiedExport, verifyExport } from "../../core/verify.ts";
import { PUBLIC_KEY_FILE } from "../../store/signing-key.ts";
import { JSON_FLAG } from "../client-flags.ts";
import { defineCommand } from "../command.ts";
import { EXIT } from "../exit-code.ts";
import { jsonText, paintFor, printable } from "../output.ts";
import { defaultDataDir } from "../paths.ts";
import type { Terminal } from "../terminal.ts";

/** Bytes that are read at once. */
const READ_BYTES = 256 * 1024;

const EXPORT_HINT = "Name a file that --save or --export wrote";

export const verify = defineCommand({
  name: "verify",
  aliases: [],
  summary: "Check that an exported event log is complete and unchanged",
  help: {
    usage: ["FILE [--key FILE]", "- [--key FILE]"],
    description: [
      "Checks the hash of every line, their order and number, and the signature of the seal. Finds " +
        "any byte changed, any line moved, added or dropped, a missing tail, and a chain that was " +
        "computed anew without the key. Exit code 0: it holds; 1: it does not, and the first line " +
        "at fault is named.",
      "The key is the public key of whoever exported: by default that of this user's data directory.",
    ],
    examples: [
      { line: "cprg verify run.ndjson", does: "Check a log that was exported on this machine" },
      {
        line: "cprg verify run.ndjson --key signing-key.pub.pem",
        does: "Check one of another machine, with its public key",
      },
    ],
  },
  flags: {
    key: {
      kind: "text",
      value: "FILE",
      doc: `Public key in PEM; default ${PUBLIC_KEY_FILE} there`,
    },
    "data-dir": {
      kind: "text",
      value: "DIR",
      env: "CPRG_DATA_DIR",
      doc: "Directory with the key; default /var/lib/cprg, or $XDG_DATA_HOME/cprg",
    },
    ...JSON_FLAG,
  },
  arguments: [{ name: "FILE", required: true }],
  takesRest: false,
  async run({ flags, args, terminal }) {
    const path = args[0] ?? "-";
    const dataDir = flags["data-dir"] ?? defaultDataDir(terminal);
    // First the file: it is what the command is about.
    await using file = path === "-" ? null : await openExport(path);
    const publicKey = await readKey(flags.key ?? join(dataDir, PUBLIC_KEY_FILE));
    const source = file === null ? terminal.readStdin() : readExport(path, file);
    const result = await verifyExport(source, { publicKey });
    if (flags.json) await terminal.stdout.write(jsonText(result));
    else if (result.ok) await terminal.stdout.write(`${acceptedText(result, terminal)}\n`);
    else {
      const paint = paintFor(terminal.stderr, terminal.env);
      const where = `line ${result.line}`;
      const text = `${paint("red", "refused:")} ${printable(`${path}: ${where}: ${result.problem}`)}`;
      await terminal.stderr.write(`${text}\n`);
    }
    return result.ok ? EXIT.ok : EXIT.failed;
  },
});

function acceptedText(result: VerifiedExport, terminal: Terminal): string {
  const paint = paintFor(terminal.stdout, terminal.env);
  const isAudit = result.subject.startsWith("audit:");
  const open = isAudit ? "up to the seal" : "the run had not ended";
  const state = result.complete ? "complete" : open;
  const facts = `${result.subject}, ${result.count} events, ${state}, sealed ${result.at}`;
  return `${paint("green", "verified:")} ${printable(facts)}`;
}

async function readKey(path: string): Promise<KeyObject> {
  const hint = "Name the exporter's public key with --key FILE";
  let pem: string;
  try {
    pem = await readFile(path, "utf8");
  } catch (error) {
    throw unreadable(path, error, hint);
  }
  try {
    return parsePublicKey(pem);
  } catch (cause) {
    const state = "it holds no Ed25519 key in PEM";
    throw new CprgError("invalid_argument", `Cannot use key "${path}": ${state}`, { hint, cause });
  }
}

async function openExport(path: string): Promise<FileHandle> {
  try {
    return await open(path);
  } catch (error) {
    throw unreadable(path, error, EXPORT_HINT);
  }
}

/** Chunks that a read(2) brings: a stream of the runtime's fails on devices, and names no file. */
async function* readExport(path: string, file: FileHandle): AsyncGenerator<Uint8Array> {
  try {
    for (;;) {
      const { bytesRead, buffer } = await file.read(
        new Uint8Array(READ_BYTES),
        0,
        READ_BYTES,
        null,
      );
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } catch (error) {
    throw unreadable(path, error, EXPORT_HINT);
  }
}

function unreadable(path: string, cause: unknown, hint: string): CprgError {
  const { code } = cause as NodeJS.ErrnoException;
  const state = code === "EISDIR" ? "it is a directory" : (code ?? "unknown error");
  return new CprgError("failed_precondition", `Cannot read "${path}": ${state}`, { hint, cause });
}
