/** Prometheus text exposition format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats). */

/** Media type of the format. */
export const PROMETHEUS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** One metric with its samples. */
export interface Metric {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge";
  readonly samples: readonly Sample[];
}

/** One value, told apart by labels. */
export interface Sample {
  readonly labels?: Readonly<Record<string, string>>;
  readonly value: number;
}

/** A metric with one sample. */
export function single(
  name: string,
  { type, help, value }: Pick<Metric, "type" | "help"> & { readonly value: number },
): Metric {
  return { name, type, help, samples: [{ value }] };
}

/** The text of metrics. */
export function prometheusText(metrics: readonly Metric[]): string {
  return metrics.map(metricText).join("");
}

function metricText({ name, help, type, samples }: Metric): string {
  const lines = samples.map(({ labels = {}, value }) => `${name}${labelText(labels)} ${value}\n`);
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join("")}`;
}

function labelText(labels: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escaped(value)}"`);
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}

function escaped(value: string): string {
  return value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
