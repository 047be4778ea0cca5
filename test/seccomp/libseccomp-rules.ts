/**
 * Rules of a profile as libseccomp-twin.c reads them. libseccomp has no "otherwise" beside its
 * default, so a check becomes blocks of values (a mask and what the masked argument must be) that
 * cover all 32-bit values, each once.
 */

import type { FilterTarget } from "../../src/sandbox/seccomp/compile-filter.ts";
import type { Answer, Check, Rules } from "../../src/sandbox/seccomp/rule.ts";

/** Arguments of which `mask` leaves `value`. */
interface Block {
  readonly mask: number;
  readonly value: number;
}

const ACTIONS: Readonly<Record<Answer, string>> = {
  allow: "7fff0000",
  trap: "7fc00000",
  EPERM: "50001",
  EINVAL: "50016",
  ENOSYS: "50026",
  EAFNOSUPPORT: "50061",
};

/** The lines. Calls with libseccomp's default action are left out, as it wants. */
export function writeRules(rules: Rules, { onTrap }: FilterTarget): string {
  const actionOf = (answer: Answer): string =>
    answer === "trap" && onTrap === "kill" ? "80000000" : ACTIONS[answer];
  const lines: string[] = [];
  for (const [name, { answer, check }] of Object.entries(rules)) {
    if (check === undefined) {
      if (answer !== "ENOSYS") lines.push(`${name} ${actionOf(answer)}`);
      continue;
    }
    const { holding, failing } = splitValues(check);
    const parts = [
      { answer: check.answer, blocks: holding },
      { answer, blocks: failing },
    ];
    for (const part of parts) {
      if (part.answer === "ENOSYS") continue;
      for (const { mask, value } of part.blocks) {
        const hex = `${mask.toString(16)} ${value.toString(16)}`;
        lines.push(`${name} ${actionOf(part.answer)} ${check.arg} ${hex}`);
      }
    }
  }
  return `${lines.join("\n")}\n`;
}

/** The values for which a check holds, and the others. */
function splitValues({ test, values }: Check): { holding: Block[]; failing: Block[] } {
  if (test === "equals") {
    return {
      holding: values.map((value) => ({ mask: 0xffffffff, value })),
      failing: complement(values, { mask: 0, value: 0 }),
    };
  }
  const bits = Array.from({ length: 32 }, (_, bit) => 2 ** bit).filter((bit) =>
    values.some((value) => (value & bit) !== 0),
  );
  const upTo = (count: number): number => bits.slice(0, count).reduce((sum, bit) => sum + bit, 0);
  return {
    // the first bit, the second without the first, the third without those, ...
    holding: bits.map((bit, index) => ({ mask: upTo(index + 1), value: bit })),
    failing: [{ mask: upTo(bits.length), value: 0 }],
  };
}

/** The blocks within one that hold none of the values: halves it until they are apart. */
function complement(values: readonly number[], { mask, value }: Block): Block[] {
  if (values.length === 0) return [{ mask, value }];
  if (mask === 0xffffffff) return [];
  const bit = 2 ** (31 - Math.clz32(~mask));
  const below = { mask: mask + bit, value };
  const above = { mask: mask + bit, value: value + bit };
  return [
    ...complement(
      values.filter((each) => (each & bit) === 0),
      below,
    ),
    ...complement(
      values.filter((each) => (each & bit) !== 0),
      above,
    ),
  ];
}
