import { describe, expect, test } from "bun:test";
import { CprgError } from "../../../src/core/errors.ts";
import { CEILING_LIMITS } from "../../../src/core/limits.ts";
import { TENANT_BYTES_MAX } from "../../../src/record/stored-bytes.ts";
import { KeyRing } from "../../../src/tenancy/key-ring.ts";
import { hashKey, KEYS_MAX, parseKeyList } from "../../../src/tenancy/keys.ts";

const KEY = "0123456789abcdef";
const parse = (text: string) => parseKeyList(text, { role: "tenant", source: "CPRG_API_KEYS" });

describe("parseKeyList()", () => {
  test("takes bare keys and keys with their tenant, spaces around them", () => {
    const entries = parse(` ${KEY}A , team-1:${KEY}B,T.2_x:${KEY}=C/+~`);
    expect(entries.map(({ tenant, role }) => [tenant, role])).toEqual([
      ["default", "tenant"],
      ["team-1", "tenant"],
      ["T.2_x", "tenant"],
    ]);
  });

  test("keeps no key, only its hash", () => {
    const [entry] = parse(`a:${KEY}`);
    expect(entry?.hash).toEqual(hashKey(KEY));
    expect(JSON.stringify(entry)).not.toContain(KEY);
  });

  test.each([
    ["an empty list", ""],
    ["an empty entry", `a:${KEY},`],
    ["a tenant without a key", "a:"],
    ["a key without its tenant", `:${KEY}`],
    ["a short key", "a:0123456789abcde"],
    ["a weak key", `a:${"ab".repeat(20)}`],
    ["a key that no header carries", `a:${KEY} x`],
    ["a key beyond ASCII", `a:${KEY}é`],
    ["a second colon", `a:b:${KEY}`],
    ["a long key", `a:${KEY.repeat(20)}`],
    ["a tenant with a slash", `a/b:${KEY}`],
    ["a tenant with a dot at its end", `a.:${KEY}`],
    ["a long tenant", `${"a".repeat(64)}:${KEY}`],
    ["too many", Array.from({ length: KEYS_MAX + 1 }, (_, n) => `${KEY}${n}`).join(",")],
  ])("refuses %s, and shows no key", (_, text) => {
    let thrown: unknown = null;
    try {
      parse(text);
    } catch (error) {
      thrown = error;
    }
    if (!CprgError.is(thrown)) throw new Error("it was taken");
    expect(thrown).toMatchObject({ code: "invalid_argument", field: "CPRG_API_KEYS" });
    expect(thrown.message).toContain("CPRG_API_KEYS");
    expect(`${thrown.message}${thrown.hint}`).not.toContain("0123456789");
  });

  test("says which entry is at fault", () => {
    expect(() => parse(`a:${KEY},b:short`)).toThrow("entry 2 of CPRG_API_KEYS");
  });
});

describe("KeyRing", () => {
  const ring = new KeyRing([
    ...parse(`a:${KEY}A,b:${KEY}B`),
    ...parseKeyList(`${KEY}C`, { role: "admin", source: "CPRG_ADMIN_KEYS" }),
    { tenant: "c", role: "tenant", hash: hashKey(`${KEY}D`), ceilings: CEILING_LIMITS },
  ]);

  test("knows whose a key is", () => {
    expect(ring.size).toBe(4);
    const of = (key: string) => ring.authenticate(key);
    expect(of(`${KEY}A`)).toMatchObject({ tenant: "a", role: "tenant", ceilings: null });
    expect(of(`${KEY}B`)).toMatchObject({ tenant: "b", role: "tenant", ceilings: null });
    expect(of(`${KEY}C`)).toMatchObject({ tenant: "default", role: "admin", ceilings: null });
    expect(of(`${KEY}D`)?.ceilings).toEqual(CEILING_LIMITS);
  });

  test("knows nobody by anything else", () => {
    for (const key of ["", KEY, `${KEY}AA`, `${KEY}a`, `a:${KEY}A`, "x".repeat(100_000)]) {
      expect(ring.authenticate(key)).toBeNull();
    }
    expect(new KeyRing([]).authenticate(`${KEY}A`)).toBeNull();
  });

  test("refuses one key for two", () => {
    expect(() => new KeyRing(parse(`a:${KEY},b:${KEY}`))).toThrow('tenant "a" (tenant)');
    expect(() => new KeyRing(parse(`a:${KEY},a:${KEY}`))).toThrow("one key");
  });
});

test("the defaults of settings are those of what they set", async () => {
  const { SETTINGS } = await import("../../../src/cli/config-table.ts");
  const host = { uid: 0, env: {}, dataDir: "/" };
  const service = await import("../../../src/jobs/service.ts");
  expect(SETTINGS.queueMax.fallback(host)).toBe(service.QUEUE_MAX);
  expect(SETTINGS.queueTenantMax.fallback(host)).toBe(service.QUEUE_TENANT_MAX);
  expect(SETTINGS.tenantStoredMb.fallback(host) * 1024 ** 2).toBe(TENANT_BYTES_MAX);
});
