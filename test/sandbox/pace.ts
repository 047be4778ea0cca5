// Time for programs on a machine that is slower than the ones the tests were written on: whoever runs
// the suite under emulation measures by how much (test/vm) and says so in CPRG_TEST_SLOWNESS.

const SLOWNESS_MOST = 100;

/** A whole number, 1 where nothing is said. */
export const SLOWNESS = slownessOf(process.env["CPRG_TEST_SLOWNESS"]);

/** Longest that one test may take, in milliseconds. */
export const TEST_TIMEOUT_MS = paced(60_000);

/** A time limit of a program, or of a wait for it, for this machine; the unit stays. */
export function paced(time: number): number {
  return time * SLOWNESS;
}

function slownessOf(text: string | undefined): number {
  if (text === undefined) return 1;
  const slowness = Number(text);
  if (Number.isInteger(slowness) && slowness >= 1 && slowness <= SLOWNESS_MOST) return slowness;
  throw new Error(`CPRG_TEST_SLOWNESS is "${text}": not a whole number from 1 to ${SLOWNESS_MOST}`);
}
