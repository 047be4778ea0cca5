/**
 * Tokens that let workers in: minted, listed, revoked. A revocation is in force before it is
 * committed, and it is said to be made after that. A token that is not in the list lets nobody in:
 * with the list its revocation would be lost, too.
 */

import type { Clock } from "../core/clock.ts";
import { CprgError, invalid } from "../core/errors.ts";
import { newId } from "../core/ids.ts";
import { checkedLabels } from "../core/program-rules.ts";
import type { StoredWorkerToken } from "../core/worker-token.ts";
import type { WorkerTokenStore } from "../store/contract.ts";
import { TENANT_NAME } from "../tenancy/keys.ts";
import type { MintedWorkerToken, WorkerTokenRequest, WorkerTokenView } from "./contract.ts";
import { badToken, type TokenSigner, WORKER_TOKEN_BYTES_MAX } from "./token-signer.ts";
import type { WorkerIdentity } from "./worker-identity.ts";
import { tokenRevoked } from "./worker-registry.ts";

/** Longest life of a token: two years. */
export const WORKER_TOKEN_SECONDS_MAX = 2 * 366 * 86_400;
/** Characters of a token's name. */
export const WORKER_TOKEN_NAME_CHARS_MAX = 64;

const WORKER_ID_PATTERN = /^(?:\*|[A-Za-z0-9][A-Za-z0-9._:-]{0,126}(?:[A-Za-z0-9._:-]|\*)?)$/;

/** What tokens work with. */
export interface WorkerTokensOptions {
  readonly store: WorkerTokenStore;
  readonly signer: TokenSigner;
  readonly clock: Clock;
  /** A token is revoked: whoever came with it goes. */
  onRevoked(tokenId: string): void;
}

/** Tokens of one control plane. */
export class WorkerTokens {
  readonly #options: WorkerTokensOptions;
  readonly #tokens = new Map<string, StoredWorkerToken>();
  /** In force, also while they are being committed. */
  readonly #revoked = new Set<string>();

  constructor(options: WorkerTokensOptions) {
    this.#options = options;
  }

  /** Reads what the store has; before anyone is let in. */
  async load(): Promise<void> {
    await this.#forgetExpired();
    for (const token of await this.#options.store.list()) {
      this.#tokens.set(token.id, token);
      if (token.revokedAt !== null) this.#revoked.add(token.id);
    }
  }

  isRevoked(id: string): boolean {
    return this.#revoked.has(id);
  }

  /** @throws CprgError `unauthenticated`: BAD_TOKEN, TOKEN_EXPIRED, TOKEN_REVOKED */
  async authenticate(text: string): Promise<WorkerIdentity> {
    const { signer, clock } = this.#options;
    const { id, workerId, labels, tenants, expiresAt } = await signer.verify(text, clock.now());
    if (this.#revoked.has(id)) throw tokenRevoked();
    if (!this.#tokens.has(id)) throw badToken();
    return { tokenId: id, workerId, labels, tenants, expiresAt };
  }

  /** @throws CprgError `invalid_argument` naming the field; `resource_exhausted` TOKENS_FULL */
  async mint(request: WorkerTokenRequest): Promise<MintedWorkerToken> {
    const { store, signer, clock } = this.#options;
    const token = tokenOf(request, clock.now());
    const text = await signer.sign(token);
    if (text.length > WORKER_TOKEN_BYTES_MAX) {
      throw invalid(
        "labels",
        `Cannot mint a token of ${text.length} bytes: at most ${WORKER_TOKEN_BYTES_MAX}`,
        "Give it fewer labels or tenants: it has to fit into a header",
      );
    }
    await this.#forgetExpired();
    await store.insert(token);
    this.#tokens.set(token.id, token);
    return { token: text, view: token };
  }

  /** Newest first. */
  list(): readonly WorkerTokenView[] {
    const now = this.#options.clock.now();
    return [...this.#tokens.values()].filter(({ expiresAt }) => expiresAt >= now).reverse();
  }

  /** @throws CprgError `not_found` */
  async revoke(id: string): Promise<WorkerTokenView> {
    const { store, clock, onRevoked } = this.#options;
    if (!this.#tokens.has(id)) throw tokenNotFound();
    this.#revoked.add(id);
    onRevoked(id);
    const revoked = await store.revoke(id, clock.now());
    if (revoked === null) throw tokenNotFound();
    this.#tokens.set(id, revoked);
    return revoked;
  }

  /** What has expired lets nobody in, revoked or not. */
  async #forgetExpired(): Promise<void> {
    const now = this.#options.clock.now();
    await this.#options.store.removeExpired(now);
    for (const { id, expiresAt } of this.#tokens.values()) {
      if (expiresAt >= now) continue;
      this.#tokens.delete(id);
      this.#revoked.delete(id);
    }
  }
}

function tokenOf(request: WorkerTokenRequest, now: number): StoredWorkerToken {
  const { workerId = "*", labels = {}, tenants = null, expiresInSeconds, name = "" } = request;
  if (!WORKER_ID_PATTERN.test(workerId)) {
    throw invalid(
      "worker_id",
      "Cannot mint: worker_id is neither an id nor a pattern",
      "1 to 128 of A-Z a-z 0-9 . _ : -, the last may be *",
    );
  }
  checkedLabels(labels);
  if (tenants !== null) checkTenants(tenants);
  const isTime = Number.isFinite(expiresInSeconds) && expiresInSeconds > 0;
  if (!isTime || expiresInSeconds > WORKER_TOKEN_SECONDS_MAX) {
    throw invalid(
      "expires_in_seconds",
      `Cannot mint: expires_in_seconds is not above 0 and at most ${WORKER_TOKEN_SECONDS_MAX}`,
    );
  }
  if (name.length > WORKER_TOKEN_NAME_CHARS_MAX || !name.isWellFormed()) {
    throw invalid("name", `Cannot mint: name is above ${WORKER_TOKEN_NAME_CHARS_MAX} characters`);
  }
  return Object.freeze({
    id: newId(),
    name,
    workerId,
    labels: Object.freeze({ ...labels }),
    tenants: tenants === null ? null : Object.freeze([...new Set(tenants)]),
    createdAt: now,
    expiresAt: now + Math.ceil(expiresInSeconds * 1000),
    revokedAt: null,
  });
}

function checkTenants(tenants: readonly string[]): void {
  if (tenants.length === 0) {
    throw invalid("tenants", "Cannot mint: no tenant", "null stands for all of them");
  }
  for (const [index, tenant] of tenants.entries()) {
    if (TENANT_NAME.test(tenant)) continue;
    throw invalid(`tenants[${index}]`, "Cannot mint: not the name of a tenant");
  }
}

function tokenNotFound(): CprgError {
  return new CprgError("not_found", "Cannot find this token: there is none", {
    reason: "TOKEN_NOT_FOUND",
  });
}
