import { describe, expect, test } from "bun:test";
import { CprgError } from "../../../src/core/errors.ts";
import {
  CEILING_LIMITS,
  ceilingMost,
  DEFAULT_LIMITS,
  LIMIT_NAMES,
  LIMIT_RULES,
  type LimitName,
  type Limits,
  parseLimits,
  SECONDS_MAX,
  SMALLEST_FRACTION,
} from "../../../src/core/limits.ts";

const WHOLE = LIMIT_NAMES.filter((name) => !LIMIT_RULES[name].fraction);
const FRACTIONS = LIMIT_NAMES.filter((name) => LIMIT_RULES[name].fraction);

function refusal(asked: unknown, ceilings?: Limits): CprgError {
  try {
    parseLimits(asked, ceilings);
  } catch (error) {
    if (CprgError.is(error)) return error;
    throw error;
  }
  throw new Error(`it was accepted: ${JSON.stringify(asked)}`);
}

/** Values of one limit that a client may think of, as JSON carries them. */
function randomValue(random: () => number): unknown {
  const values = [
    () => Math.floor(random() * 10_000),
    () => random() * 400,
    () => random() * 10 ** Math.floor(random() * 320),
    () => -random() * 100,
    () => 0,
    () => `${random()}`,
    () => null,
    () => [1],
    () => ({}),
    () => true,
    () => undefined,
  ];
  return values[Math.floor(random() * values.length)]?.();
}

/** The same numbers every time (mulberry32). */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

test("the table is the one of the contract", () => {
  const table = LIMIT_NAMES.map((name) => [name, DEFAULT_LIMITS[name], CEILING_LIMITS[name]]);
  expect(table).toEqual([
    ["wall_seconds", 30, 300],
    ["cpu_seconds", 30, 300],
    ["cpu_cores", 1, 4],
    ["mem_mb", 256, 4096],
    ["pids", 64, 1024],
    ["disk_mb", 128, 2048],
    ["inodes", 16_384, 200_000],
    ["file_mb", 64, 2048],
    ["open_files", 256, 4096],
    ["output_kb", 1024, 65_536],
  ]);
});

test("parseLimits() without a request gives the defaults, which are sound", () => {
  expect(parseLimits(undefined)).toEqual(DEFAULT_LIMITS);
  expect(parseLimits({})).toEqual(DEFAULT_LIMITS);
  expect(Object.isFrozen(parseLimits({}))).toBe(true);
  expect(parseLimits({ ...DEFAULT_LIMITS })).toEqual(DEFAULT_LIMITS);
  expect(parseLimits({ ...CEILING_LIMITS })).toEqual(CEILING_LIMITS);
});

describe.each([...LIMIT_NAMES])("parseLimits() of %s", (name: LimitName) => {
  const withMemory = (value: unknown) => ({ mem_mb: 4096, [name]: value });

  test("refuses what is no positive number, naming the field", () => {
    const hostile = [
      0,
      -0,
      -1,
      Number.POSITIVE_INFINITY,
      Number.NEGATIVE_INFINITY,
      Number.NaN,
      "x",
      "1",
      "",
      null,
      [],
      [1],
      {},
      true,
      false,
      1n,
      () => 1,
    ];
    for (const value of [...hostile, JSON.parse("1e999"), JSON.parse("-0.0")]) {
      const error = refusal(withMemory(value));
      expect([error.code, error.field]).toEqual(["invalid_argument", `limits.${name}`]);
      expect(error.hint).toContain(`${LIMIT_RULES[name].ceiling}`);
    }
  });

  test("clamps what is above the ceiling, also the ceiling of a key", () => {
    const { ceiling } = LIMIT_RULES[name];
    for (const value of [ceiling, ceiling + 1, ceiling * 1000, Number.MAX_SAFE_INTEGER, 1e300]) {
      expect(parseLimits(withMemory(value))[name]).toBe(ceiling);
    }
    const low: Limits = { ...CEILING_LIMITS, [name]: 2 };
    expect(parseLimits(withMemory(ceiling), low)[name]).toBe(2);
    expect(parseLimits({}, low)[name]).toBeLessThanOrEqual(2);
  });

  test("takes what is within", () => {
    for (const value of [1, 2, LIMIT_RULES[name].default]) {
      expect(parseLimits({ ...withMemory(value), disk_mb: 1, [name]: value })[name]).toBe(value);
    }
  });
});

test.each(WHOLE)("parseLimits() refuses a fraction of %s", (name) => {
  for (const value of [1.5, 0.5, 1e-9]) {
    expect(refusal({ [name]: value }).field).toBe(`limits.${name}`);
  }
});

test.each(FRACTIONS)("parseLimits() takes fractions of %s down to the smallest", (name) => {
  for (const value of [0.5, 1.25, SMALLEST_FRACTION]) {
    expect(parseLimits({ [name]: value })[name]).toBe(value);
  }
  for (const value of [SMALLEST_FRACTION / 2, 1e-9, Number.MIN_VALUE]) {
    expect(refusal({ [name]: value }).field).toBe(`limits.${name}`);
  }
});

test("parseLimits() refuses limits that are no object", () => {
  for (const asked of [null, [], [1], "x", "", 1, 0, true, false, Number.NaN]) {
    const error = refusal(asked);
    expect([error.code, error.field]).toEqual(["invalid_argument", "limits"]);
  }
});

test("parseLimits() refuses unknown names, and the names of every object", () => {
  const asked = JSON.parse('[{"wall":1},{"__proto__":1},{"constructor":1},{"toString":1},{"":1}]');
  for (const limits of asked) {
    const error = refusal(limits);
    expect(error.field).toBe(`limits.${Object.keys(limits)[0]}`);
    expect(error.hint).toContain("wall_seconds");
  }
  const long = refusal({ ["x".repeat(1_000_000)]: 1 });
  expect(long.message.length + (long.field?.length ?? 0)).toBeLessThan(300);
});

test("parseLimits() keeps the disk within the memory", () => {
  expect(parseLimits({ mem_mb: 64 })).toMatchObject({ mem_mb: 64, disk_mb: 64 });
  expect(parseLimits({ mem_mb: 64, disk_mb: 64 })).toMatchObject({ mem_mb: 64, disk_mb: 64 });
  for (const asked of [{ disk_mb: 257 }, { mem_mb: 64, disk_mb: 65 }, { mem_mb: 1, disk_mb: 2 }]) {
    const error = refusal(asked);
    expect([error.code, error.field]).toEqual(["invalid_argument", "limits.disk_mb"]);
    expect(error.hint).toContain("mem_mb");
  }
  const low: Limits = { ...CEILING_LIMITS, mem_mb: 100 };
  expect(parseLimits({}, low)).toMatchObject({ mem_mb: 100, disk_mb: 100 });
  expect(refusal({ disk_mb: 101 }, low).field).toBe("limits.disk_mb");
});

test("parseLimits() lets no ceiling allow more seconds than a timer holds", () => {
  // setTimeout() takes a signed number of 32 bits; more makes it fire at once.
  expect(SECONDS_MAX * 1000).toBeLessThanOrEqual(2 ** 31 - 1);
  expect((SECONDS_MAX + 1) * 1000).toBeGreaterThan(2 ** 31 - 1);
  const high: Limits = { ...CEILING_LIMITS, wall_seconds: 1e9, cpu_seconds: 1e9, mem_mb: 1e9 };
  const asked = { wall_seconds: 1e8, cpu_seconds: 1e8, mem_mb: 1e8 };
  expect(parseLimits(asked, high)).toMatchObject({
    wall_seconds: SECONDS_MAX,
    cpu_seconds: SECONDS_MAX,
    mem_mb: 1e8,
  });
  expect(LIMIT_NAMES.filter((name) => ceilingMost(name) === SECONDS_MAX)).toEqual([
    "wall_seconds",
    "cpu_seconds",
  ]);
});

test("parseLimits() of anything is sound or refused", () => {
  const random = numbers(11);
  let accepted = 0;
  for (let round = 0; round < 20_000; round += 1) {
    const names = LIMIT_NAMES.filter(() => random() < 0.2);
    const asked = Object.fromEntries(names.map((name) => [name, randomValue(random)]));
    try {
      const limits = parseLimits(asked);
      accepted += 1;
      expect(Object.keys(limits)).toEqual([...LIMIT_NAMES]);
      for (const name of LIMIT_NAMES) {
        const isSound = limits[name] > 0 && limits[name] <= CEILING_LIMITS[name];
        const isWhole = LIMIT_RULES[name].fraction || Number.isInteger(limits[name]);
        expect([name, limits[name], isSound && isWhole]).toEqual([name, limits[name], true]);
      }
      expect(limits.disk_mb).toBeLessThanOrEqual(limits.mem_mb);
    } catch (error) {
      if (!CprgError.is(error)) throw error;
      expect([error.code, error.field?.startsWith("limits.")]).toEqual(["invalid_argument", true]);
    }
  }
  expect(accepted).toBeGreaterThan(1000);
  expect(accepted).toBeLessThan(19_000);
});
