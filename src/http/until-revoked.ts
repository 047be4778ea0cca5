/**
 * What goes on under a key ends with it: requests that wait, answers that stream, WebSockets. Sits
 * before every route. What a route has already done is answered as it is: nobody is told that
 * something was refused which was carried out.
 */

import type { Context, MiddlewareHandler } from "hono";
import { CprgError } from "../core/errors.ts";
import type { AppEnv, Listener } from "./env.ts";

/** Methods that change nothing (RFC 9110 section 9.2.1), so that any answer may be refused. */
const SAFE_METHODS: readonly string[] = ["GET", "HEAD", "OPTIONS"];

/**
 * Gives a request its signal, and refuses what its key may no longer see. A body that streams is cut
 * by `streamed.ts`.
 *
 * @param isSpared requests that are answered all the same: they may be what revokes the key
 */
export function untilRevoked(isSpared: (path: string) => boolean): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const { revoked } = c.get("principal");
    const isRevocable = !isSpared(c.req.path);
    if (isRevocable) guardUpgrades(c, revoked);
    using ended = new Ended();
    ended.on(c.req.raw.signal, clientGone);
    if (isRevocable) ended.on(revoked, keyRevoked);
    c.set("signal", ended.signal);
    await next();
    if (isRevocable && revoked.aborted) await refuse(c);
  };
}

/** Aborts its signal when one of others is, until it is disposed of: a key outlives its requests. */
class Ended implements Disposable {
  readonly #abort = new AbortController();
  readonly #leave: (() => void)[] = [];

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  on(cause: AbortSignal, why: () => CprgError): void {
    const abort = (): void => this.#abort.abort(why());
    if (cause.aborted) abort();
    cause.addEventListener("abort", abort, { once: true });
    this.#leave.push(() => cause.removeEventListener("abort", abort));
  }

  [Symbol.dispose](): void {
    for (const leave of this.#leave) leave();
  }
}

/** @throws CprgError `unauthenticated` unless the route did something */
async function refuse(c: Context<AppEnv>): Promise<void> {
  const isGivenUp = CprgError.is(c.error) && c.error.code === "canceled";
  if (!isGivenUp && !SAFE_METHODS.includes(c.req.method)) return;
  await c.res.body?.cancel();
  c.res = undefined;
  throw keyRevoked();
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

function keyRevoked(): CprgError {
  return new CprgError("unauthenticated", "Cannot answer: the key was revoked", {
    reason: "KEY_REVOKED",
  });
}

function clientGone(): CprgError {
  return new CprgError("canceled", "Cannot answer: the client went away");
}
