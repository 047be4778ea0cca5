/** `[[keys]]` of the TOML file: keys by their hash, with role and ceilings of their own. */

import { DEFAULT_TENANT, type KeyEntry, type Role, TENANT_NAME } from "../tenancy/keys.ts";
import { asAnswer } from "./answers.ts";
import { limitPairs } from "./config-file.ts";
import { usageError } from "./flags.ts";
import { parseSomeCeilings } from "./settings-parse.ts";

const FIELDS = ["tenant", "hash", "role", "ceilings"];

/**
 * The keys of a file.
 *
 * @throws CprgError naming the entry and field at fault, never a hash
 */
export function fileKeys(entries: readonly unknown[]): KeyEntry[] {
  return entries.map((entry, index) => {
    const where = `keys[${index + 1}]`;
    const fields = asAnswer(entry);
    const unknown = Object.keys(fields).find((field) => !FIELDS.includes(field));
    if (unknown !== undefined) {
      throw usageError(`Cannot use ${where}.${unknown}: unknown`, `Fields: ${FIELDS.join(", ")}`);
    }
    return {
      tenant: tenantOf(fields["tenant"], where),
      role: roleOf(fields["role"], where),
      hash: hashOf(fields["hash"], where),
      ...ceilingsOf(fields["ceilings"], where),
    };
  });
}

function tenantOf(value: unknown, where: string): string {
  if (value === undefined) return DEFAULT_TENANT;
  if (typeof value === "string" && TENANT_NAME.test(value)) return value;
  throw usageError(`Cannot use ${where}.tenant: no tenant name`);
}

function roleOf(value: unknown, where: string): Role {
  if (value === undefined || value === "tenant") return "tenant";
  if (value === "admin") return "admin";
  throw usageError(`Cannot use ${where}.role: expected "tenant" or "admin"`);
}

function hashOf(value: unknown, where: string): Uint8Array {
  if (typeof value === "string" && /^[0-9a-f]{64}$/i.test(value)) return Buffer.from(value, "hex");
  throw usageError(
    `Cannot use ${where}.hash: expected 64 hexadecimal digits`,
    "printf %s KEY | sha256sum",
  );
}

function ceilingsOf(value: unknown, where: string): Pick<KeyEntry, "ceilings"> {
  if (value === undefined) return {};
  const name = `${where}.ceilings`;
  const pairs = limitPairs(value, (expected) =>
    usageError(`Cannot use ${name}: expected ${expected}`),
  );
  return { ceilings: parseSomeCeilings(pairs, name) };
}
