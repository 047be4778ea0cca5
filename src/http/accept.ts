/** Which of two forms a client asks for (RFC 9110 section 12.5.1). */

/** Whether an `Accept` header prefers NDJSON to JSON; what comes first wins a tie. */
export function prefersNdjson(header: string | undefined): boolean {
  const qualities = (header ?? "").split(",").map(parseRange);
  const best = (types: readonly string[]) =>
    Math.max(0, ...qualities.filter(({ type }) => types.includes(type)).map(({ q }) => q));
  const ndjson = best(["application/x-ndjson"]);
  const json = best(["application/json", "application/*", "*/*"]);
  if (ndjson !== json) return ndjson > json;
  if (ndjson === 0) return false;
  const first = qualities.find(({ q }) => q === ndjson);
  return first?.type === "application/x-ndjson";
}

function parseRange(range: string): { type: string; q: number } {
  const [type = "", ...parameters] = range.split(";").map((part) => part.trim().toLowerCase());
  const quality = parameters.find((parameter) => parameter.startsWith("q="));
  const q = quality === undefined ? 1 : Number(quality.slice(2));
  return { type, q: q >= 0 && q <= 1 ? q : 0 };
}
