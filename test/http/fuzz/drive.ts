// Drives every route of a description with requests, within a time, and says what came of it.

import type { Answer } from "../fixture.ts";
import { AnswerCheck } from "./answers.ts";
import { type Fuzzed, Places } from "./places.ts";
import { Random } from "./random.ts";
import { type FuzzRequest, type Operation, operationsOf, RequestMaker } from "./requests.ts";
import type { Schema } from "./values.ts";

/** Requests that every route gets, however long that takes. */
export const REQUESTS_LEAST = 200;
/** Routes that the report names for their time. */
const SLOW_SHOWN = 8;
/** Share of a route's requests that has to come through. */
const SUCCESS_SHARE = 0.4;
/** Share of requests of a tenant's key to what only administrators may, and of theirs to the rest. */
const OTHER_KEY_SHARE = 0.15;

/** Nothing upgrades a request that fetch makes; tests of streams do. */
const UPGRADES = new Set(["GET /v1/jobs/{id}/stream", "GET /v1/execs/{id}/stream"]);

/** How it is driven. */
export interface DriveOptions {
  readonly fuzzed: Fuzzed;
  /** The description, as the server gives it. */
  readonly document: Schema;
  readonly seed: number;
  /** Requests that a route gets at most. */
  readonly requests: number;
  /** Time after which a route gets no more than {@link REQUESTS_LEAST}. */
  readonly routeMs: number;
  /** Routes at once. */
  readonly lanes: number;
  /** Makes a request one that this server can take soon. */
  adapt?(operation: Operation, request: FuzzRequest): FuzzRequest;
}

/** What came of a route. */
export interface RouteReport {
  readonly route: string;
  readonly sent: number;
  readonly successes: number;
  /** Successes that are enough. */
  readonly least: number;
  /** How long it took. */
  readonly tookMs: number;
}

/** Of the requests that `make test` sends: the same each time. `make test-api` sends others in each run. */
const SEED = 847_064_375;

/** The numbers that tests read of the environment, so that a run can be longer, or run again. */
export function driveSettings(defaults: {
  readonly requests: number;
  readonly routeSeconds: number;
}) {
  const { CPRG_FUZZ_REQUESTS, CPRG_FUZZ_SEED, CPRG_FUZZ_ROUTE_SECONDS } = process.env;
  return {
    requests: Number(CPRG_FUZZ_REQUESTS ?? defaults.requests),
    seed: Number(CPRG_FUZZ_SEED ?? SEED),
    routeMs: Number(CPRG_FUZZ_ROUTE_SECONDS ?? defaults.routeSeconds) * 1000,
  };
}

/** For people: how many requests were sent, what took longest, and which routes got fewer than asked for. */
export function reportLine(reports: readonly RouteReport[], requests: number): string {
  const sent = reports.reduce((sum, report) => sum + report.sent, 0);
  const successes = reports.reduce((sum, report) => sum + report.successes, 0);
  const short = reports.filter((report) => report.sent < requests);
  const cut = short.map((report) => `${report.route} ${report.sent}`).join(", ");
  const slow = reports.toSorted((a, b) => b.tookMs - a.tookMs).slice(0, SLOW_SHOWN);
  const slowest = slow.map(({ route, tookMs }) => `${route} ${tookMs} ms`).join(", ");
  const share = Math.round((100 * successes) / sent);
  return [
    `fuzz: ${sent} requests to ${reports.length} routes, ${share} % came through`,
    `slowest: ${slowest}`,
    ...(cut === "" ? [] : [`cut short by time: ${cut}`]),
  ].join("; ");
}

/**
 * Sends every route its requests.
 *
 * @throws when one fails, or has an answer that is not described; the message has the seed
 */
export async function driveRoutes(options: DriveOptions): Promise<RouteReport[]> {
  const { document, fuzzed, lanes } = options;
  const places = await Places.open(fuzzed);
  const check = new AnswerCheck(document);
  const waiting = operationsOf(document);
  const reports: RouteReport[] = [];
  const lane = async (): Promise<void> => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      try {
        reports.push(await driveRoute(next, { ...options, places, check }));
      } catch (error) {
        // The other lanes are to stop, too.
        waiting.length = 0;
        throw error;
      }
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return reports;
}

async function driveRoute(
  operation: Operation,
  options: DriveOptions & { readonly places: Places; readonly check: AnswerCheck },
): Promise<RouteReport> {
  const { document, fuzzed, seed, requests, routeMs, places, check } = options;
  const route = `${operation.method} ${operation.path}`;
  // A route has the same requests whatever the others do meanwhile.
  const random = new Random(seed ^ Number(Bun.hash.crc32(route)));
  const maker = new RequestMaker(document, random);
  const startMs = performance.now();
  let [sent, successes] = [0, 0];
  let place = await places.of(operation);
  while (sent < requests && (sent < REQUESTS_LEAST || performance.now() - startMs < routeMs)) {
    const made = maker.make(operation, place);
    const request = withKey(operation, options.adapt?.(operation, made) ?? made, {
      random,
      adminKey: fuzzed.adminKey,
    });
    const answer = await fuzzed.ask(request.path, request);
    sent += 1;
    const isSame = request.method === operation.method;
    const problem = isSame ? check.problem(operation, answer) : failure(answer);
    if (problem !== null) throw new Error(`${shown(seed, request)}: ${problem}`);
    if (answer.status < 300) successes += 1;
    if (isSame) place = await places.next({ operation, place, answer });
  }
  await places.leave(place);
  const least = UPGRADES.has(route) ? 0 : sent * SUCCESS_SHARE;
  return { route, sent, successes, least, tookMs: Math.round(performance.now() - startMs) };
}

/** A request with the key of who may make it, now and then of somebody else. */
function withKey(
  { isAdmin }: Operation,
  request: FuzzRequest,
  { random, adminKey }: { readonly random: Random; readonly adminKey: string },
): FuzzRequest {
  const isOther = random.chance(OTHER_KEY_SHARE);
  if (request.key !== undefined || isAdmin === isOther) return request;
  return { ...request, key: adminKey };
}

function failure({ status, text }: Answer): string | null {
  return status >= 500 ? `it failed: ${text}` : null;
}

function shown(seed: number, { method, path, body, headers }: FuzzRequest): string {
  return `seed ${seed}, ${JSON.stringify({ method, path, body, headers }).slice(0, 2000)}`;
}
