/**
 * How `cprg key` reaches the keys: the database of the data directory while no server has it, else
 * a server, with an administrator's key. Both answer in the shapes of `/v1/keys`.
 */

import { join } from "node:path";
import type { AuditAction } from "../core/audit.ts";
import { CprgError } from "../core/errors.ts";
import { silentLog } from "../core/log.ts";
import { keyRequest, rotateRequest } from "../http/key-schemas.ts";
import { keyView, madeView } from "../http/key-views.ts";
import { openStore } from "../store/open.ts";
import { AuditTrail, NOBODY } from "../tenancy/audit-trail.ts";
import { KeyRegistry } from "../tenancy/key-registry.ts";
import { type Answer, asAnswer, asAnswers, asText } from "./answers.ts";
import { requestJson, type ServerAccess } from "./client.ts";
import { type ClientFlagValues, serverAccess } from "./client-flags.ts";
import { openDataDirectory } from "./data-directory.ts";
import { defaultDataDir } from "./paths.ts";
import type { Terminal } from "./terminal.ts";

/** What can be done with keys; bodies and answers are those of `/v1/keys`. */
export interface KeyAccess extends AsyncDisposable {
  create(body: Answer): Promise<Answer>;
  list(): Promise<readonly Answer[]>;
  revoke(id: string): Promise<Answer>;
  rotate(id: string, body: Answer): Promise<Answer>;
}

/** Values of the flags that say where the keys are. */
export interface KeyAccessFlags extends ClientFlagValues {
  readonly db: string | undefined;
}

/**
 * Opens the database, unless a server is named or has it.
 *
 * @throws CprgError when it cannot be opened for another reason
 */
export async function openKeys(flags: KeyAccessFlags, terminal: Terminal): Promise<KeyAccess> {
  const remote = async () => remoteKeys(await serverAccess(flags, terminal));
  const isHere = flags["data-dir"] !== undefined || flags.db !== undefined;
  if (flags.server !== undefined) return await remote();
  // A key may be in the environment for other commands: a place that is named on the line wins.
  if (flags.key !== undefined && !isHere) return await remote();
  const dataDir = flags["data-dir"] ?? defaultDataDir(terminal);
  const path = flags.db ?? join(dataDir, "cprg.db");
  if (flags.db === undefined) await openDataDirectory(dataDir);
  try {
    return await localKeys(path);
  } catch (error) {
    if (CprgError.is(error) && error.reason === "STORE_LOCKED") return await remote();
    throw error;
  }
}

async function localKeys(path: string): Promise<KeyAccess> {
  const store = await openStore({ path });
  const registry = await KeyRegistry.open({ store: store.keys, ring: null });
  const audit = new AuditTrail({ events: store.events, log: silentLog });
  /** Does it, and records it. */
  const act = async <T>(action: AuditAction, object: string | null, work: () => Promise<T>) => {
    const done = await work();
    const made = asText(asAnswer(done)["key_id"]) || object;
    audit.record({ ...NOBODY, action, key_id: "local", object: made, outcome: "ok" });
    return asAnswer(done);
  };
  return {
    create: (body) =>
      act("key.create", null, async () => madeView(await registry.create(keyRequest(body)))),
    list: async () => registry.list().map((key) => asAnswer(keyView(key))),
    revoke: (id) => act("key.revoke", id, async () => keyView(await registry.revoke(id))),
    rotate: (id, body) =>
      act("key.rotate", id, async () => madeView(await registry.rotate(id, rotateRequest(body)))),
    [Symbol.asyncDispose]: async () => {
      await audit.flush();
      await store.close();
    },
  };
}

function remoteKeys(access: ServerAccess): KeyAccess {
  const ask = async (method: "POST" | "DELETE", path: string, body?: unknown) => {
    const answer = await requestJson(access, { method, path, body });
    return asAnswer(answer.body);
  };
  return {
    create: (body) => ask("POST", "/v1/keys", body),
    list: () => listRemote(access),
    revoke: (id) => ask("DELETE", `/v1/keys/${id}`),
    rotate: (id, body) => ask("POST", `/v1/keys/${id}/rotate`, body),
    [Symbol.asyncDispose]: async () => undefined,
  };
}

async function listRemote(access: ServerAccess): Promise<readonly Answer[]> {
  const found: Answer[] = [];
  for (let cursor = ""; ; ) {
    const { body } = await requestJson(access, { path: `/v1/keys?limit=500${cursor}` });
    const page = asAnswer(body);
    found.push(...asAnswers(page["keys"]));
    const next = asText(page["next_cursor"]);
    if (next === "") return found;
    cursor = `&cursor=${next}`;
  }
}
