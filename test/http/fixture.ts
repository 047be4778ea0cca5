// An app over a fake provider, with two tenants, called in memory or over a real listener.

import type { Runner } from "../../src/control-plane/contract.ts";
import { ControlPlane } from "../../src/control-plane/control-plane.ts";
import { AUDIT_SUBJECT } from "../../src/core/audit.ts";
import { silentLog } from "../../src/core/log.ts";
import { type AppOptions, createApp } from "../../src/http/app.ts";
import { startServer } from "../../src/http/serve.ts";
import type { JobServiceOptions } from "../../src/jobs/service.ts";
import { exportLog } from "../../src/record/export.ts";
import { SandboxService, type SandboxServiceOptions } from "../../src/sandboxes/service.ts";
import type { Store } from "../../src/store/contract.ts";
import { KeyRing } from "../../src/tenancy/key-ring.ts";
import { parseKeyList } from "../../src/tenancy/keys.ts";
import { RATE_PER_MIN_MAX } from "../../src/tenancy/rate-windows.ts";
import { openTenancy } from "../../src/tenancy/tenancy.ts";
import type { FakeOptions } from "../jobs/fake-provider.ts";
import { signingKey, startService } from "../jobs/fixture.ts";

export const KEY_A = "tenant-a-key-0123456789";
export const KEY_B = "tenant-b-key-0123456789";

export const KEY_ADMIN = "admin-key-0123456789abcdef";

const CONFIGURED = [
  ...parseKeyList(`a:${KEY_A},b:${KEY_B}`, { role: "tenant", source: "CPRG_API_KEYS" }),
  ...parseKeyList(`root:${KEY_ADMIN}`, { role: "admin", source: "CPRG_ADMIN_KEYS" }),
];

export interface FixtureOptions {
  readonly fake?: FakeOptions;
  readonly service?: Partial<JobServiceOptions>;
  readonly app?: Partial<AppOptions>;
  readonly sandboxes?: Partial<SandboxServiceOptions>;
}

/** What an app needs of tenancy, over a store; keys may make as many requests as they like. */
export async function tenantsOf(store: Store, keys = new KeyRing(CONFIGURED)) {
  const ratePerMin = RATE_PER_MIN_MAX;
  const tenancy = await openTenancy({ store, ring: keys, log: silentLog, ratePerMin });
  const exportAudit = () => exportLog({ store, key: signingKey, subject: AUDIT_SUBJECT });
  return { keys, tenancy, exportAudit };
}

/** Does what its input says: gives it back, or hangs until it is stopped. */
export const echoRunner: Runner = async (input, { signal, note }) => {
  await note(`input ${JSON.stringify(input)}`);
  if (input !== "hang") return input;
  return await new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    if (signal.aborted) reject(signal.reason);
  });
};

/** Options of an app whose jobs run in a fake provider. */
export async function appOptions({
  fake = {},
  service = {},
  sandboxes: given = {},
  app = {},
}: FixtureOptions = {}) {
  const started = await startService(fake, service);
  const ring = app.keys ?? new KeyRing(CONFIGURED);
  const tenants = await tenantsOf(started.store, ring);
  const { store, feed, provider } = started;
  const sandboxes = new SandboxService({
    store,
    feed,
    provider,
    signingKey,
    instance: "instance-a",
    log: silentLog,
    ...given,
  });
  const plane = await ControlPlane.create({ store, feed, ownsStore: false, stopGraceMs: 0 });
  plane.setRunner("shell", echoRunner);
  const options: AppOptions = {
    jobs: started.jobs,
    tasks: { control: plane, feed, runners: { shell: () => undefined } },
    sandboxes,
    ...tenants,
    engine: { mode: "ns", layers: { fake: true }, missing: [], instance: "instance-a" },
    privileges: { isReduced: true, capabilities: ["CAP_SETUID"] },
    log: silentLog,
    version: "1.2.3",
    ...app,
  };
  return { ...started, plane, tenancy: options.tenancy, options };
}

/** How a request is made: of tenant `a` with JSON, unless told otherwise. */
export interface Ask {
  readonly method?: string;
  /** Sent as JSON, or as it is when it is text or bytes. */
  readonly body?: unknown;
  readonly key?: string | null;
  readonly headers?: Record<string, string>;
  readonly signal?: AbortSignal;
}

/** An answer whose body was read. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
  readonly json: any;
}

/** The `RequestInit` of an {@link Ask}. */
export function requestInit({ method, body, key = KEY_A, headers, signal }: Ask): RequestInit {
  const isRaw = typeof body === "string" || body instanceof Uint8Array;
  return {
    method: method ?? (body === undefined ? "GET" : "POST"),
    headers: {
      ...(key === null ? {} : { Authorization: `Bearer ${key}` }),
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: isRaw ? (body as Bun.BodyInit) : JSON.stringify(body) }),
    ...(signal === undefined ? {} : { signal }),
  };
}

/** An answer, read to its end. */
export async function readAnswer(response: Response): Promise<Answer> {
  const text = await response.text();
  const isJson = /[/+]json$/.test(response.headers.get("content-type") ?? "");
  return {
    status: response.status,
    headers: response.headers,
    text,
    json: isJson && text !== "" ? JSON.parse(text) : null,
  };
}

/** An app in memory and how to ask it. */
export async function useApp(fixture: FixtureOptions = {}) {
  const started = await appOptions(fixture);
  const app = createApp(started.options);
  const ask = async (path: string, how: Ask = {}): Promise<Answer> =>
    await readAnswer(await app.request(path, requestInit(how)));
  return { ...started, app, ask };
}

/** A real listener on a free port of the loopback address; `await using` stops it. */
export async function useServer(fixture: FixtureOptions = {}) {
  const started = await appOptions(fixture);
  const server = await startServer({ ...started.options, hostname: "127.0.0.1", port: 0 });
  const ask = async (path: string, how: Ask = {}): Promise<Answer> =>
    await readAnswer(await fetch(new URL(path, server.url), requestInit(how)));
  return {
    ...started,
    server,
    ask,
    [Symbol.asyncDispose]: async () => {
      await started.jobs.stop(0);
      await server.stop();
    },
  };
}

/** A body of the smallest job. */
export function python(code: string, more: Record<string, unknown> = {}) {
  return { language: "python", code, ...more };
}
