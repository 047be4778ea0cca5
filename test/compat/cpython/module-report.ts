/** What run-modules.py prints: a line when a module starts, and one with what became of its tests. */

/** One module, run once on one side. */
export interface ModuleReport {
  readonly module: string;
  /** `passed`, `failed`, `skipped` (nothing ran), `hung`, or how it broke off: `crashed (-6)`, `oom`. */
  readonly ending: string;
  readonly seconds: number;
  /** The end of what it printed, when it did not end well. */
  readonly text: string;
  /** Tests that were started. */
  readonly count: number;
  /** Ids of the tests that failed, or met an error. */
  readonly failed: readonly string[];
  /** Ids of the tests that were not run. */
  readonly skipped: readonly string[];
}

/** The reports of a run, and the module in which it broke off. */
export interface RunReports {
  readonly ended: readonly ModuleReport[];
  readonly unfinished: string | null;
}

/** Reads what one run has printed. A last line that is cut off counts for nothing. */
export function parseReports(text: string): RunReports {
  const ended: ModuleReport[] = [];
  let unfinished: string | null = null;
  for (const line of text.split("\n").slice(0, -1)) {
    const report = JSON.parse(line) as { readonly module: string } | ModuleReport;
    if ("ending" in report) {
      ended.push(report);
      unfinished = null;
    } else {
      unfinished = report.module;
    }
  }
  return { ended, unfinished };
}

/** The report of a module that ended its whole run: by a violation, out of memory, out of time. */
export function brokenOff(module: string, ending: string, text: string): ModuleReport {
  return { module, ending, seconds: 0, text, count: 0, failed: [], skipped: [] };
}
