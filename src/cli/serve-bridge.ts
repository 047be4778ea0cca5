/** The control plane of a server, from its settings: store, keys, runners, and where it listens. */

import { readFile } from "node:fs/promises";
import type { ListenerTls } from "../bridge/listener.ts";
import { ControlPlane } from "../control-plane/control-plane.ts";
import { agentRunner, checkAgentInput } from "../control-plane/runners/agent.ts";
import { shellRunner } from "../control-plane/runners/shell.ts";
import { shellInput } from "../control-plane/runners/shell-input.ts";
import type { SecretSet } from "../core/secrets.ts";
import type { Json } from "../core/task.ts";
import type { TaskParts } from "../http/routes/tasks.ts";
import type { Feed } from "../record/feed.ts";
import type { Store } from "../store/contract.ts";
import { configError } from "./config.ts";
import type { Settings } from "./config-table.ts";
import type { JsonLog } from "./log-json.ts";
import { type Address, formatAddress, isLoopback } from "./settings-parse.ts";
import { readTlsFiles } from "./tls-files.ts";
import { VERSION } from "./version.ts";

/** Where `cprg control-plane` listens for workers when nothing is said. */
export const BRIDGE_ADDRESS_DEFAULT: Address = { host: "127.0.0.1", port: 7600 };

/** What it works with. */
export interface BridgeOptions {
  readonly store: Store;
  readonly feed: Feed;
  readonly log: JsonLog;
  readonly secrets: SecretSet;
  readonly tls: ListenerTls | null;
}

/** A control plane that was opened, and does not listen yet. */
export interface Bridge {
  readonly plane: ControlPlane;
  /** What the HTTP app needs of it. */
  readonly tasks: TaskParts;
  /** Listens for workers, and says where, for people. */
  listen(): Promise<readonly string[]>;
}

/**
 * Opens it; what an earlier one left is recovered before this resolves.
 *
 * @throws CprgError for settings that cannot be used
 */
export async function openBridge(
  settings: Settings,
  address: Address,
  { store, feed, log, secrets, tls }: BridgeOptions,
): Promise<Bridge> {
  const { bridgeToken: token, agentModel } = settings;
  const agent = agentModel === null ? null : agentRunner(agentModel, agentOptions(settings));
  const plane = await ControlPlane.create({
    store,
    // The server closes it, after everything else.
    ownsStore: false,
    feed,
    dataDirectory: settings.dataDir,
    recoverQueued: settings.recoverQueued,
    tenantLimit: settings.tenantClaims,
    tenantBytesMax: settings.tenantStoredMb * 1024 ** 2,
    allowShared: settings.allowSharedToken,
    ...(token === null ? {} : { token }),
    version: VERSION,
    log: log.scope("control-plane"),
    secrets,
  });
  plane.setRunner("shell", shellRunner());
  if (agent !== null) plane.setRunner("agent", agent);
  const runners = {
    shell: (input: Json) => void shellInput(input),
    ...(agent === null ? {} : { agent: checkAgentInput }),
  };
  return {
    plane,
    tasks: { control: plane, feed, runners },
    listen: async () => {
      const { host, port } = await plane.serve({ ...address, ...(tls === null ? {} : { tls }) });
      return lines(settings, { address: { host, port }, isTls: tls !== null });
    },
  };
}

/**
 * The certificate that workers are shown, and the authority that theirs must come from.
 *
 * @throws CprgError `failed_precondition` for files that cannot be used
 */
export async function bridgeTls(settings: Settings, uid: number): Promise<ListenerTls | null> {
  const { bridgeTlsCert: certPath, bridgeTlsKey: keyPath, bridgeTlsClientCa: caPath } = settings;
  const files = await readTlsFiles({ certPath, keyPath, uid, now: Date.now() });
  if (files === null) {
    if (caPath === null) return null;
    const hint = "Set --bridge-tls-cert FILE and --bridge-tls-key FILE";
    throw configError("Cannot check certificates of workers: the bridge speaks no TLS", hint);
  }
  const tls = { certificate: files.cert, key: files.key };
  if (caPath === null) return tls;
  const clientAuthority = await readFile(caPath, "utf8").catch(() => "");
  if (clientAuthority.includes("-----BEGIN CERTIFICATE-----")) return { ...tls, clientAuthority };
  throw configError(`Cannot use certificates "${caPath}"`, "Name a PEM file that can be read");
}

function agentOptions(settings: Settings) {
  const { agentBaseUrl: baseUrl, agentKey: apiKey } = settings;
  return {
    ...(baseUrl === null ? {} : { baseUrl }),
    ...(apiKey === null ? {} : { apiKey }),
    budget: {
      steps: settings.agentSteps,
      wallSeconds: settings.agentWallSeconds,
      tokens: settings.agentTokens,
    },
  };
}

function lines(
  { bridgeToken, allowSharedToken, agentModel }: Settings,
  { address, isTls }: { readonly address: Address; readonly isTls: boolean },
): readonly string[] {
  const isOpen = !isLoopback(address);
  const bearer = allowSharedToken && isOpen ? "from any address" : "from this host alone";
  return [
    `bridge   ${formatAddress(address)}${isTls ? " (TLS)" : ""}`,
    ...(isOpen && !isTls ? ["warning  workers' tokens cross the network in the clear"] : []),
    ...(bridgeToken === null
      ? []
      : [`warning  one shared bearer lets workers in ${bearer}; it cannot be revoked singly`]),
    `agent    ${agentModel ?? "off"}`,
  ];
}
