// control_plane_stub.py as a test drives it: one step at a time.

import { join } from "node:path";
import { jsonLines } from "../bridge/control.ts";

const STUB = join(import.meta.dir, "control_plane_stub.py");

/** What the stub prints. */
export type StubEvent = Readonly<Record<string, unknown>>;

/** The done event of a step, and what came before it. */
export interface Done extends StubEvent {
  readonly end?: {
    readonly error?: string;
    readonly response?: StubEvent;
    readonly length?: number;
  };
  readonly bytes?: number;
  readonly meanwhile: readonly StubEvent[];
}

/** A control plane that does what it is told. */
export interface ControlPlaneStub {
  readonly port: number;
  /** Does one step. @throws Error when it could not be done */
  step(name: string, fields?: Readonly<Record<string, unknown>>): Promise<Done>;
  stop(): Promise<void>;
}

/** Starts the stub; `config` is of the streams that come. */
export async function startStub(config: Record<string, unknown> = {}): Promise<ControlPlaneStub> {
  const child = Bun.spawn(["/usr/bin/python3", STUB, "--keep-going"], {
    env: { ...process.env, PYTHONDONTWRITEBYTECODE: "1" },
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
  });
  const events = jsonLines(child.stdout);
  const next = async (): Promise<StubEvent> => {
    const { value } = await events.next();
    if (value === undefined) throw new Error("the stub has gone");
    return value;
  };
  const { port } = await next();
  const step: ControlPlaneStub["step"] = async (name, fields = {}) => {
    child.stdin.write(`${JSON.stringify({ do: name, ...fields })}\n`);
    await child.stdin.flush();
    const meanwhile: StubEvent[] = [];
    for (;;) {
      const event = await next();
      if (event["event"] !== "done") meanwhile.push(event);
      else if (event["error"] === undefined) return { ...event, meanwhile };
      else throw new Error(`${name}: ${event["error"]}`);
    }
  };
  await step("config", config);
  const stop = async (): Promise<void> => {
    child.kill("SIGKILL");
    await child.exited;
  };
  return { port: Number(port), step, stop };
}
