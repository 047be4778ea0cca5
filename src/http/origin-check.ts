/**
 * Whom a request believes it talks to, and which page sent it. A name that an attacker's DNS points
 * at this host makes a browser send pages of the attacker here ("DNS rebinding"); addresses cannot be
 * pointed anywhere. A page of another origin may neither change anything nor open a WebSocket.
 */

import { isIP } from "node:net";
import type { MiddlewareHandler } from "hono";
import { CprgError } from "../core/errors.ts";
import { isUpgrade } from "./auth.ts";
import type { AppEnv } from "./env.ts";

/** Methods that change nothing (RFC 9110 section 9.2.1). */
const SAFE_METHODS: readonly string[] = ["GET", "HEAD", "OPTIONS"];
/** Characters of a host that an answer repeats. */
const SHOWN_CHARS = 100;

/**
 * Lets only requests pass that name this server, and state-changing ones only from its own pages or
 * from no page at all.
 *
 * @param names host names beyond addresses and localhost, in lower case
 * @throws CprgError reason HOST_NOT_ALLOWED (421) or ORIGIN_NOT_ALLOWED (403)
 */
export function checkOrigin(names: readonly string[]): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const host = c.req.header("host") ?? "";
    if (!isOurs(host, names)) throw wrongHost(host);
    const origin = c.req.header("origin");
    const changes = !SAFE_METHODS.includes(c.req.method) || isUpgrade(c.req.raw);
    if (origin !== undefined && changes && !isSameOrigin(origin, { host, names })) {
      throw wrongOrigin(origin);
    }
    await next();
  };
}

/** Whether a Host header names an address, this machine, or one of the names. */
function isOurs(host: string, names: readonly string[]): boolean {
  const name = hostName(host);
  if (name === null) return false;
  return isIP(name) !== 0 || isLocalName(name) || names.includes(name);
}

/** localhost and what is beneath it, which no DNS answers for (RFC 6761 section 6.3). */
function isLocalName(name: string): boolean {
  return name === "localhost" || name.endsWith(".localhost");
}

/** The name of `name:port` without brackets and the last dot; null for what is no host. */
function hostName(host: string): string | null {
  const match = /^(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::\d{1,5})?$/.exec(host.toLowerCase());
  const name = match?.[1] ?? match?.[2] ?? null;
  return name?.replace(/\.$/, "") ?? null;
}

/** The scheme does not count: a proxy in front of the server may end TLS. */
function isSameOrigin(
  origin: string,
  { host, names }: { readonly host: string; readonly names: readonly string[] },
): boolean {
  const match = /^https?:\/\/([^/?#@\\]+)$/i.exec(origin);
  const from = match?.[1]?.toLowerCase();
  if (from === undefined) return false;
  return from === host.toLowerCase() || names.includes(hostName(from) ?? "");
}

function wrongHost(host: string): CprgError {
  return new CprgError(
    "permission_denied",
    `Cannot answer for host "${host.slice(0, SHOWN_CHARS)}": this server has no such name`,
    {
      reason: "HOST_NOT_ALLOWED",
      hint: "Use its address, or name the host in --allowed-hosts or CPRG_ALLOWED_HOSTS",
    },
  );
}

function wrongOrigin(origin: string): CprgError {
  return new CprgError(
    "permission_denied",
    `Cannot answer to a page of "${origin.slice(0, SHOWN_CHARS)}": it is no page of this server`,
    { reason: "ORIGIN_NOT_ALLOWED" },
  );
}
