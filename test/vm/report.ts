// What a ground says of itself and of each test: lines of JSON, written as things happen, so that a
// machine that dies has told what it was doing.

/** How one test ended. */
export interface TestReport {
  /** `file > group > name`: the same on every ground. */
  readonly id: string;
  readonly status: "passed" | "failed" | "skipped";
}

/** One line. */
export type ReportLine =
  | {
      readonly type: "machine";
      /** Read from inside: uname(2), getuid(2) and what is mounted (cgroups(7)). */
      readonly kernel: string;
      readonly uid: number;
      readonly cgroup: string;
      /** What the time limits of test programs are multiplied by. */
      readonly slowness: number;
    }
  | { readonly type: "start"; readonly file: string }
  | {
      readonly type: "file";
      readonly file: string;
      readonly durationMs: number;
      readonly tests: readonly TestReport[];
      /** What is wrong beyond single failed tests. */
      readonly problem: string | null;
    }
  | { readonly type: "end" };

/** Lines so far; what is no whole line yet, or none of ours, is left out. */
export function parseReport(text: string): ReportLine[] {
  return text
    .split("\n")
    .slice(0, -1)
    .flatMap((line) => {
      try {
        return [JSON.parse(line) as ReportLine];
      } catch {
        // A line that was cut by the end of a machine: what it would have said counts as unsaid.
        return [];
      }
    });
}

/**
 * The tests of a JUnit report of `bun test`, or null when it is not whole. Ids that occur twice get a
 * number, so that none hides another.
 */
export function parseJunit(xml: string): TestReport[] | null {
  if (!xml.trimEnd().endsWith("</testsuites>")) return null;
  const seen = new Map<string, number>();
  const cases = xml.matchAll(
    /<testcase name="([^"]*)" classname="([^"]*)"[^>]*? file="([^"]*)"[^>]*?(?:\/>|>([\s\S]*?)<\/testcase>)/g,
  );
  return [...cases].flatMap(([, name = "", group = "", file = "", body = ""]): TestReport[] => {
    // The hooks of a group that is skipped: no tests.
    if (name === "(unnamed)" && body.includes("<skipped")) return [];
    const title = [file, group, name].filter((part) => part !== "").map(unescapeXml);
    const plain = title.join(" > ");
    const count = (seen.get(plain) ?? 0) + 1;
    seen.set(plain, count);
    const id = count === 1 ? plain : `${plain} #${count}`;
    if (body.includes("<failure")) return [{ id, status: "failed" }];
    return [{ id, status: body.includes("<skipped") ? "skipped" : "passed" }];
  });
}

function unescapeXml(text: string): string {
  return text
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&quot;", '"')
    .replaceAll("&apos;", "'")
    .replaceAll("&amp;", "&");
}
