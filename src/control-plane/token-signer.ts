/** Tokens of workers as signed text: a JWT (RFC 7519) with EdDSA (RFC 8037), which says all of it. */

import { createPublicKey, type KeyObject } from "node:crypto";
import { errors, jwtVerify, SignJWT } from "jose";
import { CprgError } from "../core/errors.ts";
import type { StoredWorkerToken } from "../core/worker-token.ts";

/** Bytes of a token: with the other metadata of a worker it has to fit into 8 KiB of headers. */
export const WORKER_TOKEN_BYTES_MAX = 4096;

const ALGORITHM = "EdDSA";
const ISSUER = "cprg";
const AUDIENCE = "cprg-worker";

/** What a token says that was signed here and has not expired. */
export type TokenClaims = Pick<
  StoredWorkerToken,
  "id" | "workerId" | "labels" | "tenants" | "expiresAt"
>;

/** Signs, and checks what it signed. */
export class TokenSigner {
  readonly #privateKey: KeyObject;
  readonly #publicKey: KeyObject;

  /** @param key private, Ed25519 */
  constructor(key: KeyObject) {
    this.#privateKey = key;
    this.#publicKey = createPublicKey(key);
  }

  async sign(token: StoredWorkerToken): Promise<string> {
    const { id, workerId, labels, tenants, createdAt, expiresAt } = token;
    return await new SignJWT({ labels, tenants })
      .setProtectedHeader({ alg: ALGORITHM, typ: "JWT" })
      .setIssuer(ISSUER)
      .setAudience(AUDIENCE)
      .setSubject(workerId)
      .setJti(id)
      .setIssuedAt(Math.floor(createdAt / 1000))
      .setExpirationTime(expiresAt / 1000)
      .sign(this.#privateKey);
  }

  /**
   * @param now milliseconds since 1970
   * @throws CprgError `unauthenticated`: TOKEN_EXPIRED, BAD_TOKEN
   */
  async verify(text: string, now: number): Promise<TokenClaims> {
    if (text.length > WORKER_TOKEN_BYTES_MAX) throw badToken();
    try {
      const { payload } = await jwtVerify(text, this.#publicKey, {
        algorithms: [ALGORITHM],
        issuer: ISSUER,
        audience: AUDIENCE,
        requiredClaims: ["jti", "sub", "exp", "labels", "tenants"],
        currentDate: new Date(now),
      });
      // The signature says that it was made above, so the claims are of these types.
      return {
        id: payload.jti ?? "",
        workerId: payload.sub ?? "",
        labels: payload["labels"] as TokenClaims["labels"],
        tenants: payload["tenants"] as TokenClaims["tenants"],
        expiresAt: (payload.exp ?? 0) * 1000,
      };
    } catch (error) {
      if (error instanceof errors.JWTExpired) {
        throw new CprgError("unauthenticated", "the token has expired", {
          reason: "TOKEN_EXPIRED",
        });
      }
      throw badToken();
    }
  }
}

/** The refusal of a token that is none of ours. */
export function badToken(message = "no such token"): CprgError {
  return new CprgError("unauthenticated", message, { reason: "BAD_TOKEN" });
}
