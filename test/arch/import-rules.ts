// The folder table of ARCHITECTURE.md as pure functions: which file may import what.
// Reads no files; imports.test.ts feeds it the tree, table.test.ts feeds it planted violations.

import { posix } from "node:path";

/** Specifiers as written, by file, with paths from the top of the checkout: `src/core/ids.ts`. */
export type ImportsByFile = Readonly<Record<string, readonly string[]>>;

/** What each folder of src/ may import besides itself and what is under a floor further down. */
const floors: readonly (readonly string[])[] = [
  ["main"],
  ["cli"],
  ["http", "worker", "sdk"],
  ["jobs", "sandboxes", "control-plane", "dispatch", "attack"],
  ["record"],
  ["sandbox", "bridge", "provider", "tenancy"],
  ["store"],
  ["core", "gen"],
];

/** Allowed although both stand on one floor. */
const sameFloor: Readonly<Record<string, readonly string[]>> = {
  // The engine implements the lease contract.
  sandbox: ["provider"],
};

/** Forbidden although the floor is further down, with the reason. */
const forbidden: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  http: {
    store: "http reaches the store through jobs, control-plane and tenancy",
    attack: "attacks run from the command line alone",
  },
  worker: {
    "control-plane": "worker and control-plane know each other only through the bridge",
    jobs: "a worker has no job queue",
    attack: "attacks run from the command line alone",
    sandboxes: "a worker serves no sandboxes over HTTP",
    record: "a worker keeps no log",
    dispatch: "a worker dispatches nothing",
    tenancy: "a worker has no keys to check",
    store: "a worker keeps no database",
  },
  attack: {
    store: "attacks need sandboxes alone",
    tenancy: "attacks need sandboxes alone",
    bridge: "attacks need sandboxes alone",
  },
  sdk: {
    jobs: "the SDK reaches jobs over HTTP",
    sandboxes: "the SDK reaches sandboxes over HTTP",
    record: "the SDK keeps no log",
    attack: "the SDK attacks nothing",
  },
  bridge: { store: "the bridge knows no SQLite" },
  sandbox: { store: "the local engine knows no SQLite" },
  provider: { store: "providers know no SQLite" },
};

/** Modules and folders outside src/ that only some places may name. */
const reserved: readonly {
  readonly what: string;
  readonly matches: (target: string) => boolean;
  readonly isAllowed: (file: string) => boolean;
  readonly rule: string;
}[] = [
  {
    what: "ffi",
    matches: (target) => target === "bun:ffi" || isUnder(target, "ffi"),
    isAllowed: (file) => file === "src/sandbox/native.ts",
    rule: "only src/sandbox/native.ts touches ffi/ and bun:ffi",
  },
  {
    what: "built ffi",
    matches: (target) => isUnder(target, "dist"),
    isAllowed: (file) => file === "src/sandbox/native.ts" || file === "src/sandbox/embedded.ts",
    rule: "only src/sandbox/embedded.ts and native.ts take files from dist/",
  },
  {
    what: "sqlite",
    matches: (target) => target === "bun:sqlite",
    isAllowed: (file) => isUnder(file, "src/store"),
    rule: "only src/store opens a database",
  },
  {
    what: "dashboard",
    matches: (target) => isUnder(target, "public"),
    isAllowed: (file) => file === "src/http/dashboard.ts",
    rule: "only src/http/dashboard.ts takes files from public/",
  },
  {
    what: "ai",
    matches: (target) => target === "ai" || target.startsWith("@ai-sdk/"),
    isAllowed: (file) => file === "src/control-plane/runners/model-library.js",
    rule: "only src/control-plane/runners/model-library.js loads the library of models, and late",
  },
  {
    what: "hono",
    matches: (target) =>
      target === "hono" || target.startsWith("hono/") || target.startsWith("@hono/"),
    isAllowed: (file) =>
      !["jobs", "sandboxes", "record", "tenancy", "sandbox", "provider"].includes(
        folderOf(file) ?? "",
      ) && !isUnder(file, "src/core"),
    rule: "jobs, sandboxes, record, tenancy, sandbox and provider know no HTTP types",
  },
];

/** Modules that do no I/O, which core may use. */
const pureModules = ["node:crypto", "uuid"];

/** Returns one line per violation; none means that the tree keeps the table. */
export function checkImports(files: ImportsByFile): string[] {
  const violations: string[] = [];
  const edges = new Map<string, string[]>();
  for (const [file, specifiers] of Object.entries(files)) {
    if (!isPlaced(file)) violations.push(`${file}: its folder is not in the table`);
    const targets = specifiers.map((specifier) => resolve(file, specifier, files));
    edges.set(
      file,
      targets.filter((target) => target in files),
    );
    for (const target of targets) violations.push(...checkOne(file, target));
  }
  return [...violations, ...findCycles(edges)];
}

/** Returns one line per file, other than main.ts, whose code calls process.exit. */
export function checkExits(codeByFile: Readonly<Record<string, string>>): string[] {
  const call = /(?<!["'`\w.])process\s*(?:\?\.|\.)\s*(?:exit|reallyExit|abort)\s*\(/;
  return Object.entries(codeByFile)
    .filter(([file, code]) => file !== "src/main.ts" && call.test(code))
    .map(([file]) => `${file}: only src/main.ts ends the process`);
}

/** Every module that a source names, type-only imports included. */
export function findSpecifiers(source: string): string[] {
  const patterns = [
    /^\s*(?:import|export)\s+(?:type\s+)?[\w$*{][\w$\s,*{}]*?\s*from\s*["']([^"']+)["']/gm,
    /^\s*import\s*["']([^"']+)["']/gm,
    /\bimport\s*\(\s*["'`]([^"'`]+)["'`]/g,
    /\brequire(?:\.resolve)?\s*\(\s*["'`]([^"'`]+)["'`]/g,
    /\bnew\s+URL\(\s*["'`](\.[^"'`]+)["'`]\s*,\s*import\.meta/g,
  ];
  const found = patterns.flatMap((pattern) =>
    [...source.matchAll(pattern)].map((match) => match[1] ?? ""),
  );
  return [...new Set(found)];
}

function checkOne(file: string, target: string): string[] {
  const violations = reserved
    .filter((entry) => entry.matches(target) && !entry.isAllowed(file))
    .map((entry) => `${file} imports ${target}: ${entry.rule}`);
  const from = folderOf(file);
  if (from === "core" && !isUnder(target, "src/core") && !pureModules.includes(target)) {
    violations.push(`${file} imports ${target}: core imports nothing but core and pure modules`);
  }
  const to = folderOf(target);
  if (from === undefined || to === undefined || from === to || from === "core") return violations;
  const reason = whyForbidden(from, to);
  return reason === undefined
    ? violations
    : [...violations, `${file} imports ${target}: ${reason}`];
}

function whyForbidden(from: string, to: string): string | undefined {
  const reason = forbidden[from]?.[to];
  if (reason !== undefined) return reason;
  if (sameFloor[from]?.includes(to)) return undefined;
  return floorOf(to) > floorOf(from) ? undefined : `${from} may not import ${to}`;
}

function floorOf(folder: string): number {
  return floors.findIndex((floor) => floor.includes(folder));
}

function isPlaced(file: string): boolean {
  const folder = folderOf(file);
  return (folder !== undefined && floorOf(folder) >= 0) || /^src\/[^/]+\.d\.ts$/.test(file);
}

/** `core` for src/core/ids.ts, `main` for src/main.ts, undefined outside src/ and its folders. */
function folderOf(path: string): string | undefined {
  return path === "src/main.ts" ? "main" : /^src\/([^/]+)\//.exec(path)?.[1];
}

function isUnder(path: string, folder: string): boolean {
  return path.startsWith(`${folder}/`);
}

/** A path from the top of the checkout for relative specifiers, the specifier itself otherwise. */
function resolve(file: string, specifier: string, files: ImportsByFile): string {
  if (!specifier.startsWith(".")) return specifier;
  const path = posix.normalize(posix.join(posix.dirname(file), specifier));
  const candidates = [path, `${path}.ts`, `${path}/index.ts`, path.replace(/\.js$/, ".ts")];
  return candidates.find((candidate) => candidate in files) ?? path;
}

/** Depth-first search; names each cycle once, by the edge that closes it. */
function findCycles(edges: ReadonlyMap<string, readonly string[]>): string[] {
  const done = new Set<string>();
  const trail: string[] = [];
  const cycles: string[] = [];
  const visit = (file: string): void => {
    const start = trail.indexOf(file);
    if (start >= 0) cycles.push(`import cycle: ${[...trail.slice(start), file].join(" -> ")}`);
    if (start >= 0 || done.has(file)) return;
    trail.push(file);
    for (const target of edges.get(file) ?? []) visit(target);
    trail.pop();
    done.add(file);
  };
  for (const file of edges.keys()) visit(file);
  return cycles;
}
