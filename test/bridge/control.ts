// A control plane of a few lines, and workers in processes of their own.

import { join } from "node:path";
import type { Mux } from "../../src/bridge/contract.ts";
import { Handlers } from "../../src/bridge/handlers.ts";
import { type Admission, type ListenerOptions, listen } from "../../src/bridge/listener.ts";
import type { Registration } from "../../src/bridge/metadata.ts";
import { CREDIT, HEARTBEAT_NOTICE, HTTP2_PING } from "../../src/bridge/methods.ts";
import { openMux } from "../../src/bridge/mux.ts";
import { CprgError } from "../../src/core/errors.ts";

const FIXTURE = join(import.meta.dir, "../fixtures/bridge-worker.ts");

export interface Control {
  readonly port: number;
  /** The mux of the next worker that registers. */
  next(): Promise<Mux>;
  close(): Promise<void>;
}

export interface ControlOptions extends Partial<ListenerOptions<string>> {
  readonly lists?: readonly string[];
  readonly admit?: Admission<string>["admit"];
  /** What it serves; notices of heartbeats by default. */
  readonly handlers?: Handlers;
  readonly heartbeatSeconds?: number;
  /** The secret that a worker is given; none by default. @throws CprgError to refuse it */
  readonly secretFor?: (registration: Registration) => string | undefined;
}

/** Lets every worker in that has the token `good`. */
export async function startControl(options: ControlOptions = {}): Promise<Control> {
  const { lists = [CREDIT.name, HTTP2_PING], admit, heartbeatSeconds = 5, ...others } = options;
  const { handlers = new Handlers().notice(HEARTBEAT_NOTICE, () => undefined), ...more } = others;
  const { secretFor = () => undefined, ...rest } = more;
  const arrived: Mux[] = [];
  const waiting: ((mux: Mux) => void)[] = [];
  const listener = await listen({
    host: "127.0.0.1",
    port: 0,
    ...rest,
    admission: {
      authenticate: (token) => {
        if (token === "good") return token;
        throw new CprgError("unauthenticated", "no such token", { reason: "BAD_TOKEN" });
      },
      admit:
        admit ??
        ((registration) => ({
          control: {
            methods: lists,
            version: "test",
            heartbeatSeconds,
            secret: secretFor(registration),
          },
          connected: (stream) => {
            const peer = new Set(registration.methods);
            const mux = openMux(stream, { handlers, own: lists, peer });
            const waiter = waiting.shift();
            if (waiter === undefined) arrived.push(mux);
            else waiter(mux);
          },
        })),
    },
  });
  return {
    port: listener.port,
    next: () => {
      const mux = arrived.shift();
      return mux === undefined
        ? new Promise((resolve) => waiting.push(resolve))
        : Promise.resolve(mux);
    },
    close: () => listener.close(),
  };
}

/** A process that runs, and the lines that it prints. */
export interface WorkerProcess {
  readonly pid: number;
  /** The next line; undefined when it has ended. */
  line(): Promise<Record<string, unknown> | undefined>;
  kill(signal: NodeJS.Signals): void;
  readonly exited: Promise<number>;
}

/** Starts test/fixtures/bridge-worker.ts. */
export function startWorker(options: Record<string, unknown>): WorkerProcess {
  const given = { host: "127.0.0.1", token: "good", ...options };
  return startProcess([process.execPath, FIXTURE, JSON.stringify(given)]);
}

/** Starts a program that prints JSON lines. */
export function startProcess(command: string[]): WorkerProcess {
  const child = Bun.spawn(command, {
    stdout: "pipe",
    stderr: "inherit",
    stdin: "ignore",
  });
  const lines = jsonLines(child.stdout);
  return {
    pid: child.pid,
    line: async () => (await lines.next()).value ?? undefined,
    kill: (signal) => child.kill(signal),
    exited: child.exited,
  };
}

/** The lines of a program that prints JSON lines. */
export async function* jsonLines(
  output: ReadableStream<Uint8Array>,
): AsyncGenerator<Record<string, unknown>, undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of output) {
    const parts = (rest + decoder.decode(bytes, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) yield JSON.parse(part) as Record<string, unknown>;
  }
  return undefined;
}
