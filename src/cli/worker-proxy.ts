/** The proxy on the way to a control plane, as the environment names it. */

import { usageError } from "./flags.ts";

/** Where the worker is to dial. */
interface ProxiedTarget {
  readonly host: string;
  readonly port: number;
}

/**
 * The proxy of `HTTPS_PROXY`, unless `NO_PROXY` names the target: its host, a domain above it, `*`,
 * each alone or with the port. Both also in lower case; the upper case wins.
 *
 * @throws CprgError USAGE for a proxy that is no URL
 */
export function proxyFor(
  target: ProxiedTarget,
  env: Readonly<Record<string, string | undefined>>,
): URL | undefined {
  const proxy = env["HTTPS_PROXY"] || env["https_proxy"];
  if (!proxy) return undefined;
  const names = (env["NO_PROXY"] || env["no_proxy"] || "").split(",");
  if (names.some((name) => isNamed(target, name.trim().toLowerCase()))) return undefined;
  const isUrl = /^https?:\/\//.test(proxy) && URL.canParse(proxy);
  if (!isUrl) throw usageError("Cannot use HTTPS_PROXY: neither http://HOST:PORT nor https://…");
  return new URL(proxy);
}

function isNamed({ host, port }: ProxiedTarget, name: string): boolean {
  if (name === "*") return true;
  const [, bracketed, plain = "", given] = /^(?:\[(.*)\]|(.*?))(?::(\d+))?$/.exec(name) ?? [];
  // An IPv6 address without brackets has colons of its own.
  const isAddress = bracketed === undefined && name.split(":").length > 2;
  const domain = isAddress ? name : (bracketed ?? plain).replace(/^\*?\./, "");
  if (domain === "" || (!isAddress && given !== undefined && Number(given) !== port)) return false;
  const asked = host.toLowerCase();
  return asked === domain || asked.endsWith(`.${domain}`);
}
