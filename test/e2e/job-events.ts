// Follows a job over the WebSocket of the server under test and waits for events in it.

import type { EventRow } from "../../src/core/event.ts";

/** Where the server is and how to get in. */
export interface Address {
  readonly url: string;
  readonly key: string;
}

/** What to do with a stream. */
export interface FollowOptions {
  readonly fromSeq?: number;
  /** Called with each event and its exact line, at the instant it arrives. */
  onEvent?(event: EventRow, line: string): void;
}

/** A job that is followed. */
export interface Followed extends Disposable {
  readonly events: readonly EventRow[];
  /** The first event, past or future, that passes. @throws when the stream ends without one */
  until(passes: (event: EventRow) => boolean): Promise<EventRow>;
  /** Close code, once the server has closed. */
  readonly closed: Promise<number>;
}

interface Waiter {
  passes(event: EventRow): boolean;
  resolve(event: EventRow): void;
  reject(error: Error): void;
}

/** Follows a job from `fromSeq`, 1 unless told. */
export function followJob(server: Address, id: string, options: FollowOptions = {}): Followed {
  const url = `${server.url.replace(/^http/, "ws")}/v1/jobs/${id}/stream`;
  const socket = new WebSocket(`${url}?from_seq=${options.fromSeq ?? 1}`, {
    headers: { Authorization: `Bearer ${server.key}` },
  });
  const events: EventRow[] = [];
  const waiters = new Set<Waiter>();
  const closed = Promise.withResolvers<number>();
  let code: number | null = null;
  socket.onmessage = ({ data: line }) => {
    const event = JSON.parse(String(line)) as EventRow;
    options.onEvent?.(event, String(line));
    events.push(event);
    for (const waiter of waiters) {
      if (!waiter.passes(event)) continue;
      waiters.delete(waiter);
      waiter.resolve(event);
    }
  };
  const ended = (): Error => new Error(`the stream ended (${code}): ${shown(events.at(-1))}`);
  socket.onclose = (event) => {
    code = event.code;
    for (const waiter of waiters) waiter.reject(ended());
    closed.resolve(event.code);
  };
  return {
    events,
    closed: closed.promise,
    until(passes) {
      const past = events.find(passes);
      if (past !== undefined) return Promise.resolve(past);
      if (code !== null) return Promise.reject(ended());
      const { promise, resolve, reject } = Promise.withResolvers<EventRow>();
      waiters.add({ passes, resolve, reject });
      return promise;
    },
    [Symbol.dispose]: () => socket.close(),
  };
}

function shown(event: EventRow | undefined): string {
  return JSON.stringify(event)?.slice(0, 500) ?? "nothing came";
}

/** Whether an event is output of a stream that holds a text. */
export function outputHas(text: string, stream: "stdout" | "stderr" = "stdout") {
  return (event: EventRow): boolean => event.kind === stream && String(event.data).includes(text);
}

/** Whether an event is of a kind. */
export function isKind(kind: EventRow["kind"]) {
  return (event: EventRow): boolean => event.kind === kind;
}
