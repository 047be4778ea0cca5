/**
 * What goes on under a key ends with it: requests that wait, answers that stream, WebSockets. Sits
 * before every route, so that a new one cannot forget.
 */

import type { Context, MiddlewareHandler } from "hono";
import { CprgError } from "../core/errors.ts";
import type { AppEnv, Listener } from "./env.ts";

/** Media types of answers that may go on for long. */
const LONG_TYPES = [
  "application/x-ndjson",
  "text/event-stream",
  "application/octet-stream",
  "application/x-tar",
];

/**
 * Cuts what a request began when its key is revoked or has ended.
 *
 * @param isSpared requests that are answered all the same: they may be what revokes the key
 */
export function untilRevoked(isSpared: (path: string) => boolean): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const { revoked } = c.get("principal");
    if (isSpared(c.req.path)) return await next();
    guardUpgrades(c, revoked);
    const gone = Promise.withResolvers<never>();
    const leave = (): void => gone.reject(keyRevoked());
    revoked.addEventListener("abort", leave, { once: true });
    try {
      await Promise.race([next(), gone.promise]);
    } finally {
      revoked.removeEventListener("abort", leave);
    }
    const type = c.res.headers.get("content-type")?.split(";")[0] ?? "";
    if (c.res.body !== null && LONG_TYPES.includes(type)) {
      c.res = new Response(cutBody(c.res.body, revoked), c.res);
    }
  };
}

/** The streams of this request's upgrade hear of the key. */
function guardUpgrades(c: Context<AppEnv>, revoked: AbortSignal): void {
  const listener: Listener | undefined = c.env?.listener;
  if (listener === undefined) return;
  c.env.listener = {
    setIdleTimeout: (request, seconds) => listener.setIdleTimeout(request, seconds),
    upgrade: (request, stream) => {
      const isOpen = listener.upgrade(request, stream);
      if (!isOpen) return false;
      const cut = (): void => stream.refuse();
      if (revoked.aborted) cut();
      revoked.addEventListener("abort", cut, { once: true });
      void stream.gone.then(() => revoked.removeEventListener("abort", cut));
      return true;
    },
  };
}

/** A body that breaks off, so that the client does not take a part for the whole. */
function cutBody(
  body: ReadableStream<Uint8Array>,
  revoked: AbortSignal,
): ReadableStream<Uint8Array> {
  const reader = body.getReader();
  let cut = (): void => undefined;
  const settle = (): void => revoked.removeEventListener("abort", cut);
  return new ReadableStream<Uint8Array>({
    start(controller) {
      cut = () => {
        // Bun prints an error that it is given here, beside the log.
        controller.error();
        void reader.cancel().catch(() => undefined);
      };
      if (revoked.aborted) cut();
      else revoked.addEventListener("abort", cut, { once: true });
    },
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (revoked.aborted) return;
        if (!done) return controller.enqueue(value);
        settle();
        controller.close();
      } catch {
        // The source has said why to whoever made it.
        settle();
        controller.error();
      }
    },
    async cancel() {
      settle();
      await reader.cancel();
    },
  });
}

function keyRevoked(): CprgError {
  return new CprgError("unauthenticated", "Cannot answer: the key was revoked", {
    reason: "KEY_REVOKED",
  });
}
