/** The flags of `cprg worker` as values, each checked before anything is opened. */

import { join } from "node:path";
import { resolve } from "node:path/posix";
import { READ_BYTES_MAX } from "../bridge/limits.ts";
import { type Limits, parseLimits } from "../core/limits.ts";
import { checkedLabels } from "../core/program-rules.ts";
import { usageError } from "./flags.ts";
import { defaultDataDir } from "./paths.ts";
import { parseRunLimits } from "./run-limits.ts";
import type { Terminal } from "./terminal.ts";
import { proxyFor } from "./worker-proxy.ts";

/** Flags as they were given. */
export interface WorkerFlags {
  readonly connect: string | undefined;
  readonly root: string | undefined;
  readonly isolate: string | undefined;
  readonly slots: string | undefined;
  readonly limit: readonly string[];
  readonly label: readonly string[];
  readonly name: string | undefined;
  readonly once: boolean;
  readonly plain: boolean;
  readonly attempts: string | undefined;
  readonly tls: boolean;
  readonly "tls-ca": string | undefined;
  readonly "tls-cert": string | undefined;
  readonly "tls-key": string | undefined;
  readonly "state-dir": string | undefined;
  readonly "max-read-bytes": string | undefined;
  readonly "pass-env": readonly string[];
}

/** What a worker is started with. */
export interface WorkerSettings {
  readonly host: string;
  readonly port: number;
  /** Null: claims are in sandboxes. */
  readonly root: string | null;
  readonly isolate: Isolation;
  readonly slots: number;
  /** Of each sandbox. */
  readonly limits: Limits;
  readonly labels: Readonly<Record<string, string>>;
  readonly name: string;
  readonly isOnce: boolean;
  readonly isPlain: boolean;
  /** Dials in a row that may fail; undefined: any number. */
  readonly attemptsMax: number | undefined;
  readonly isTls: boolean;
  readonly stateDir: string;
  readonly readBytesMax: number;
  /** Variables that programs get. */
  readonly passed: Readonly<Record<string, string>>;
  readonly proxy: URL | undefined;
}

/** How claims are kept apart from the host. */
export type Isolation = "auto" | "ns" | "rootless" | "off";

const ISOLATIONS: readonly Isolation[] = ["auto", "ns", "rootless", "off"];
const SLOTS_MAX = 1024;
const PORT_DEFAULT = 7600;
const NAME_CHARS_MAX = 128;

/** @throws CprgError USAGE naming the flag */
export function workerSettings(flags: WorkerFlags, terminal: Terminal): WorkerSettings {
  const { connect, root } = flags;
  if (connect === undefined) throw usageError("Cannot go on: --connect HOST:PORT is missing");
  const isolate = parseIsolation(flags.isolate, root);
  const slots = parseSlots(flags.slots, isolate);
  if ((flags["tls-cert"] === undefined) !== (flags["tls-key"] === undefined)) {
    throw usageError("Cannot use one of --tls-cert and --tls-key without the other");
  }
  const name = flags.name ?? "";
  if (name.length > NAME_CHARS_MAX) throw usageError("Cannot use --name: above 128 characters");
  const { host, port } = parseTarget(connect);
  const dataDir = terminal.env["CPRG_DATA_DIR"] || defaultDataDir(terminal);
  return {
    host,
    port,
    root: root === undefined ? null : resolve(terminal.directory, root),
    isolate,
    slots,
    limits: parseLimits(parseRunLimits({ ...flags, timeout: undefined, mem: undefined })),
    labels: checkedLabels(parseLabels(flags.label)),
    name,
    isOnce: flags.once,
    isPlain: flags.plain,
    attemptsMax: parseAttempts(flags.attempts),
    isTls: flags.tls || flags["tls-ca"] !== undefined || flags["tls-cert"] !== undefined,
    stateDir: resolve(terminal.directory, flags["state-dir"] ?? join(dataDir, "worker")),
    readBytesMax: parseReadBytes(flags["max-read-bytes"]),
    passed: passedVariables(flags["pass-env"], terminal.env),
    proxy: proxyFor({ host, port }, terminal.env),
  };
}

/** A sandbox cannot have a directory of the host for its own, so the two exclude each other. */
function parseIsolation(text: string | undefined, root: string | undefined): Isolation {
  const found = ISOLATIONS.find((mode) => mode === text);
  if (text !== undefined && found === undefined) {
    throw usageError(`Cannot use --isolate ${JSON.stringify(text)}: ${ISOLATIONS.join(", ")}`);
  }
  const isolate = found ?? (root === undefined ? "auto" : "off");
  if (isolate === "off" && root === undefined) {
    throw usageError("Cannot go on: --root DIR is missing", "--isolate off needs one");
  }
  if (isolate !== "off" && root !== undefined) {
    throw usageError("Cannot use --root with a sandbox", "Leave out --root, or use --isolate off");
  }
  return isolate;
}

function parseSlots(text: string | undefined, isolate: Isolation): number {
  const slots = Number(text ?? 1);
  if (!Number.isInteger(slots) || slots < 1 || slots > SLOTS_MAX) {
    throw usageError(`Cannot use --slots: not from 1 to ${SLOTS_MAX}`);
  }
  if (slots > 1 && isolate === "off") {
    throw usageError("Cannot use --slots above 1 without a sandbox: claims would see each other");
  }
  return slots;
}

function parseAttempts(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw usageError("Cannot use --attempts: no whole number from 1 on");
}

/** `host`, `host:port`, `[::1]:port`. */
function parseTarget(text: string): { readonly host: string; readonly port: number } {
  const found = /^(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::(\d{1,5}))?$/.exec(text);
  const port = Number(found?.[3] ?? PORT_DEFAULT);
  const host = found?.[1] ?? found?.[2];
  if (host !== undefined && port >= 1 && port <= 65_535) return { host, port };
  throw usageError(`Cannot use --connect ${JSON.stringify(text)}: not HOST:PORT`);
}

function parseLabels(texts: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    texts.map((text) => {
      const at = text.indexOf("=");
      if (at < 1) throw usageError(`Cannot use --label ${JSON.stringify(text)}: not NAME=VALUE`);
      return [text.slice(0, at), text.slice(at + 1)];
    }),
  );
}

function parseReadBytes(text: string | undefined): number {
  if (text === undefined) return READ_BYTES_MAX;
  const bytes = Number(text);
  if (/^\d+$/.test(text) && bytes >= 1 && bytes <= READ_BYTES_MAX) return bytes;
  throw usageError(`Cannot use --max-read-bytes: not from 1 to ${READ_BYTES_MAX}`);
}

/** Those that are set; the worker's own secrets and switches of the runtime are none to pass. */
function passedVariables(names: readonly string[], env: Terminal["env"]): Record<string, string> {
  const forbidden = names.find((name) => /^(CPRG|_CPRG|BUN|NODE)_/.test(name) || name === "");
  if (forbidden !== undefined) {
    throw usageError(`Cannot use --pass-env ${forbidden}: it is the worker's own`);
  }
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}
