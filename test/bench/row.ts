// One row of the benchmark: two things measured in turn, their medians, their ratio, the bar.

/** A row as it is kept in results/latest.json. */
export interface Row {
  readonly id: string;
  readonly ours: number;
  readonly reference: number;
  /** As the bar wants it: ours over reference for `<=`, reference over ours for `>=`. */
  readonly ratio: number;
  readonly unit: string;
  readonly bar: string;
  readonly pass: boolean;
  /** What is compared, in words. */
  readonly what: string;
  readonly samples: { readonly ours: readonly number[]; readonly reference: readonly number[] };
}

/** Samples that every row needs. */
export const SAMPLES_MIN = 30;

/** How often each side is run before samples count. */
const WARM_UP = 5;

/** Takes samples of both sides in turn. */
export async function sampleInTurn(
  sides: {
    readonly ours: () => Promise<number>;
    readonly reference: () => Promise<number>;
  },
  count: number,
): Promise<Row["samples"]> {
  const ours: number[] = [];
  const reference: number[] = [];
  for (let round = -WARM_UP; round < count; round += 1) {
    // Who goes first alternates, so that neither always finds the other's warm caches.
    const isOursFirst = round % 2 === 0;
    const first = isOursFirst ? await sides.ours() : await sides.reference();
    const second = isOursFirst ? await sides.reference() : await sides.ours();
    if (round < 0) continue;
    ours.push(isOursFirst ? first : second);
    reference.push(isOursFirst ? second : first);
  }
  return { ours, reference };
}

/** A row from its samples. */
export function toRow(
  facts: { readonly id: string; readonly what: string; readonly unit: string; readonly bar: Bar },
  samples: Row["samples"],
): Row {
  if (Math.min(samples.ours.length, samples.reference.length) < SAMPLES_MIN) {
    throw new Error(`${facts.id}: fewer than ${SAMPLES_MIN} samples`);
  }
  const ours = median(samples.ours);
  const reference = median(samples.reference);
  const { sign, value } = facts.bar;
  const ratio = sign === "<=" ? ours / reference : reference / ours;
  const pass = sign === "<=" ? ratio <= value : ratio >= value;
  return { ...facts, ours, reference, ratio, bar: `${sign} ${value}`, pass, samples };
}

/** What a ratio must keep. */
export interface Bar {
  readonly sign: "<=" | ">=";
  readonly value: number;
}

/** The middle value. */
export function median(values: readonly number[]): number {
  return percentile(values, 50);
}

/** The value that `percent` of the others do not exceed (nearest rank). */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((left, right) => left - right);
  const rank = Math.max(1, Math.ceil((percent / 100) * sorted.length));
  return sorted[rank - 1] ?? Number.NaN;
}

/** Milliseconds that something takes. */
export async function timed(work: () => Promise<void>): Promise<number> {
  const begin = performance.now();
  await work();
  return performance.now() - begin;
}
