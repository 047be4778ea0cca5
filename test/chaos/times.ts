// Times of the chaos: loss is seen within seconds, and the worker always dies first.

export const TOKEN = "shared-token-of-the-chaos-0123456789";

export const LIVENESS = {
  heartbeatSeconds: 1,
  silenceMs: 2500,
  graceMs: 1500,
  claimTtlSeconds: 4,
} as const;
