/**
 * What a worker says of itself before the first frame, and what it is told (proto/PROTOCOL.md
 * section 2). Everything a peer sends is checked here, once, and only here.
 */

import { CprgError } from "../core/errors.ts";
import { METADATA_BYTES_MAX } from "./limits.ts";

/** A claim as it stands in `x-worker-claims`. */
export interface HeldClaim {
  readonly taskId: string;
  readonly epoch: number;
}

/** Who registers. */
export interface Registration {
  readonly workerId: string;
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  /** Capabilities that it lists. */
  readonly methods: readonly string[];
  readonly version: string;
  /** Claims that it takes at once. */
  readonly slots: number;
  readonly secret: string | undefined;
  readonly claims: readonly HeldClaim[];
}

/** What the control plane answers with. */
export interface ControlMetadata {
  readonly methods: readonly string[];
  readonly version: string;
  readonly heartbeatSeconds: number;
  /** At every registration without one, until one has been presented (section 7). */
  readonly secret: string | undefined;
}

/** A header: its name in lower case, and its value. */
export type Header = readonly [name: string, value: string];

export const HEARTBEAT_SECONDS_DEFAULT = 30;

const LABELS_MAX = 32;
const METHODS_MAX = 128;
const CLAIMS_MAX = 1024;
const SLOTS_MAX = 1024;
const HEARTBEAT_SECONDS_MAX = 3600;

const WORKER_ID = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;
const LABEL_NAME = /^[A-Za-z0-9._/-]{1,63}$/;
const CAPABILITY = /^[A-Za-z0-9._/-]{1,64}$/;
const PRINTABLE = /^[ -~]*$/;
const SECRET = /^[A-Za-z0-9_-]{1,128}$/;
const CLAIM = /^([A-Za-z0-9._-]{1,128}):([1-9][0-9]{0,15})$/;
const WHOLE = /^[1-9][0-9]{0,8}$/;

/**
 * The bearer token.
 *
 * @throws CprgError `unauthenticated`, NO_TOKEN
 */
export function bearerToken(headers: readonly Header[]): string {
  const values = headers.filter(([name]) => name === "authorization").map(([, value]) => value);
  const token = values.length === 1 ? /^Bearer ([!-~]+)$/i.exec(values[0] ?? "")?.[1] : undefined;
  if (token !== undefined) return token;
  throw new CprgError("unauthenticated", "authorization is not `Bearer TOKEN`", {
    reason: "NO_TOKEN",
  });
}

/** @throws CprgError `invalid_argument`, BAD_METADATA, naming the header */
export function parseRegistration(headers: readonly Header[]): Registration {
  const ours = headers.filter(([name]) => name === "authorization" || name.startsWith("x-worker-"));
  const bytes = ours.reduce((sum, [name, value]) => sum + name.length + value.length, 0);
  if (bytes > METADATA_BYTES_MAX) throw bad("metadata", `above ${METADATA_BYTES_MAX} bytes`);
  const values = single(ours);
  const workerId = values.get("x-worker-id");
  if (workerId === undefined) throw bad("x-worker-id", "missing");
  if (!WORKER_ID.test(workerId)) throw bad("x-worker-id", "not 1 to 128 of A-Z a-z 0-9 . _ : -");
  return Object.freeze({
    workerId,
    name: parseName(values.get("x-worker-name") ?? ""),
    labels: parseLabels(values.get("x-worker-labels")),
    methods: parseMethods("x-worker-methods", values.get("x-worker-methods")),
    version: parseVersion("x-worker-version", values.get("x-worker-version")),
    slots: parseWhole("x-worker-slots", values.get("x-worker-slots") ?? "1", SLOTS_MAX),
    secret: parseSecret(values.get("x-worker-secret")),
    claims: parseClaims(values.get("x-worker-claims")),
  });
}

/** The headers that say it; throws as {@link parseRegistration} for what could not be read back. */
export function registrationHeaders(registration: Registration, token: string): Header[] {
  const { workerId, name, labels, methods, version, slots, secret, claims } = registration;
  const headers: Header[] = [
    ["authorization", `Bearer ${token}`],
    ["x-worker-id", workerId],
    ["x-worker-name", asciiJson(name).slice(1, -1)],
    ["x-worker-labels", asciiJson(labels)],
    ["x-worker-methods", methods.join(",")],
    ["x-worker-version", version],
    ["x-worker-slots", `${slots}`],
    ["x-worker-claims", claims.map(({ taskId, epoch }) => `${taskId}:${epoch}`).join(",")],
  ];
  if (secret !== undefined) headers.push(["x-worker-secret", secret]);
  bearerToken(headers);
  parseRegistration(headers);
  return headers;
}

/**
 * What a control plane said; a plain peer says nothing. A header that breaks its rule is as good as
 * absent: a fault of the control plane is no reason for a worker to stop.
 */
export function parseControl(headers: readonly Header[]): ControlMetadata {
  return controlFrom(headers, (read, text) => {
    try {
      return read(text);
    } catch {
      return read(undefined);
    }
  });
}

type ReadHeader = <T>(read: (text: string | undefined) => T, text: string | undefined) => T;

function controlFrom(headers: readonly Header[], readHeader: ReadHeader): ControlMetadata {
  const field = <T>(name: string, read: (text: string | undefined) => T): T => {
    const found = headers.filter(([each]) => each === name);
    const once = (text: string | undefined): T => {
      if (text !== undefined) single(found);
      return read(text);
    };
    return readHeader(once, found[0]?.[1]);
  };
  const parseSeconds = (text = `${HEARTBEAT_SECONDS_DEFAULT}`): number =>
    parseWhole("x-control-heartbeat-seconds", text, HEARTBEAT_SECONDS_MAX);
  return Object.freeze({
    methods: field("x-control-methods", (text) => parseMethods("x-control-methods", text)),
    version: field("x-control-version", (text) => parseVersion("x-control-version", text)),
    heartbeatSeconds: field("x-control-heartbeat-seconds", parseSeconds),
    secret: field("x-worker-secret", parseSecret),
  });
}

/** The headers that say it. @throws as {@link parseRegistration} for what could not be read back */
export function controlHeaders(control: ControlMetadata): Header[] {
  const headers: Header[] = [
    ["x-control-methods", control.methods.join(",")],
    ["x-control-version", control.version],
    ["x-control-heartbeat-seconds", `${control.heartbeatSeconds}`],
  ];
  if (control.secret !== undefined) headers.push(["x-worker-secret", control.secret]);
  controlFrom(headers, (read, text) => read(text));
  return headers;
}

/** Each of our headers once, printable. */
function single(headers: readonly Header[]): Map<string, string> {
  const values = new Map<string, string>();
  for (const [name, value] of headers) {
    if (values.has(name)) throw bad(name, "there twice");
    if (!PRINTABLE.test(value)) throw bad(name, "not printable ASCII");
    values.set(name, value);
  }
  return values;
}

function parseName(text: string): string {
  const name = unescaped(text);
  if ([...name].length > 128) throw bad("x-worker-name", "above 128 characters");
  return name;
}

/**
 * A text that is no inside of a JSON string is taken as it is: plain peers escape nothing. A quote
 * stands for itself, with a backslash or without.
 */
function unescaped(text: string): string {
  try {
    const inside = text.replace(/\\.|"/g, (part) => (part === '"' ? '\\"' : part));
    const name: unknown = JSON.parse(`"${inside}"`);
    return typeof name === "string" && name.isWellFormed() ? name : text;
  } catch {
    return text;
  }
}

function parseLabels(text: string | undefined): Readonly<Record<string, string>> {
  if (text === undefined || text === "") return Object.freeze({});
  let labels: unknown;
  try {
    labels = JSON.parse(text);
  } catch {
    throw bad("x-worker-labels", "no JSON");
  }
  if (typeof labels !== "object" || labels === null || Array.isArray(labels)) {
    throw bad("x-worker-labels", "no JSON object");
  }
  const entries = Object.entries(labels);
  if (entries.length > LABELS_MAX) throw bad("x-worker-labels", `above ${LABELS_MAX} labels`);
  for (const [name, value] of entries) {
    if (!LABEL_NAME.test(name)) throw bad("x-worker-labels", "a name breaks the rule for labels");
    if (typeof value !== "string" || value.length > 256 || !value.isWellFormed()) {
      throw bad("x-worker-labels", `the value of ${name} is no text of at most 256 characters`);
    }
  }
  // Without a prototype, for `__proto__` is a label like any other.
  return Object.freeze(Object.assign(Object.create(null), Object.fromEntries(entries)));
}

function parseMethods(header: string, text: string | undefined): readonly string[] {
  const methods = listOf(text);
  if (methods.length > METHODS_MAX) throw bad(header, `above ${METHODS_MAX} capabilities`);
  const wrong = methods.some((method) => !CAPABILITY.test(method));
  if (wrong) throw bad(header, "a capability is not 1 to 64 of A-Z a-z 0-9 . _ / -");
  return Object.freeze(methods);
}

function parseVersion(header: string, text = ""): string {
  if (text.length > 64) throw bad(header, "above 64 characters");
  return text;
}

function parseWhole(header: string, text: string, most: number): number {
  if (WHOLE.test(text) && Number(text) <= most) return Number(text);
  throw bad(header, `no whole number from 1 to ${most}`);
}

function parseSecret(text: string | undefined): string | undefined {
  if (text === undefined || SECRET.test(text)) return text;
  throw bad("x-worker-secret", "not 1 to 128 of A-Z a-z 0-9 _ -");
}

function parseClaims(text: string | undefined): readonly HeldClaim[] {
  const claims = listOf(text).map((each) => {
    const [, taskId, epoch] = CLAIM.exec(each) ?? [];
    if (taskId === undefined || !Number.isSafeInteger(Number(epoch))) {
      throw bad("x-worker-claims", "not TASK:EPOCH,...");
    }
    return Object.freeze({ taskId, epoch: Number(epoch) });
  });
  if (claims.length > CLAIMS_MAX) throw bad("x-worker-claims", `above ${CLAIMS_MAX} claims`);
  if (new Set(claims.map(({ taskId }) => taskId)).size < claims.length) {
    throw bad("x-worker-claims", "a task is there twice");
  }
  return Object.freeze(claims);
}

function listOf(text: string | undefined): string[] {
  if (text === undefined || text.trim() === "") return [];
  return text.split(",").map((part) => part.trim());
}

/** JSON in ASCII. */
function asciiJson(value: unknown): string {
  return JSON.stringify(value).replace(
    /[^ -~]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

function bad(header: string, problem: string): CprgError {
  return new CprgError("invalid_argument", `${header}: ${problem}`, { reason: "BAD_METADATA" });
}
