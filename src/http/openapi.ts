/** `/openapi.json` (OpenAPI 3.1): made of the schemas that read requests, and of the routes' docs. */

import { z } from "zod";
import * as answers from "./answers.ts";
import * as keyAnswers from "./key-answers.ts";
import { keyBody, rotateBody } from "./key-schemas.ts";
import { type Parameters, parameterSchema } from "./parameters.ts";
import type { AnswerDoc, RouteDoc } from "./route-doc.ts";
import * as sandboxAnswers from "./sandbox-answers.ts";
import * as sandboxSchemas from "./sandbox-schemas.ts";
import * as schemas from "./schemas.ts";
import * as taskAnswers from "./task-answers.ts";
import { taskBody, workerTokenBody } from "./task-schemas.ts";

/** A JSON object. */
export type JsonObject = { readonly [name: string]: unknown };

/** A document of OpenAPI, as far as the page of docs reads it. */
export interface OpenApi extends JsonObject {
  readonly paths: Readonly<Record<string, Readonly<Record<string, JsonObject>>>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, JsonObject>>;
    readonly securitySchemes: JsonObject;
  };
}

/** Schemas that have a name in the document. */
const NAMED: Readonly<Record<string, z.ZodType>> = {
  JobRequest: schemas.jobBody,
  BatchRequest: schemas.batchBody,
  Job: answers.job,
  JobList: answers.jobList,
  Batch: answers.batch,
  Result: answers.result,
  Replay: answers.replay,
  FileList: answers.fileList,
  SandboxRequest: sandboxSchemas.sandboxBody,
  ExecRequest: sandboxSchemas.execBody,
  SignalRequest: sandboxSchemas.signalBody,
  SizeRequest: sandboxSchemas.sizeBody,
  Sandbox: sandboxAnswers.sandbox,
  SandboxList: sandboxAnswers.sandboxList,
  Exec: sandboxAnswers.exec,
  ExecList: sandboxAnswers.execList,
  ExecResult: sandboxAnswers.execResult,
  ExecReplay: sandboxAnswers.execReplay,
  KeyRequest: keyBody,
  RotateRequest: rotateBody,
  Key: keyAnswers.key,
  MadeKey: keyAnswers.madeKey,
  KeyList: keyAnswers.keyList,
  TaskRequest: taskBody,
  Task: taskAnswers.task,
  TaskEntry: taskAnswers.taskEntry,
  TaskList: taskAnswers.taskList,
  Worker: taskAnswers.worker,
  WorkerList: taskAnswers.workerList,
  WorkerTokenRequest: workerTokenBody,
  WorkerToken: taskAnswers.workerToken,
  MintedWorkerToken: taskAnswers.mintedWorkerToken,
  WorkerTokenList: taskAnswers.workerTokenList,
  LanguageList: answers.languageList,
  Status: answers.serverStatus,
  Health: answers.health,
  Index: answers.index,
  Problem: answers.problem,
};

/** What any route may answer with, by what it takes. */
const EVERY_PROBLEM = [400, 405, 406, 421, 429, 500, 503, 507];
/** 501: the server was started without that part. */
const KEY_PROBLEMS = [401, 403, 501];
const BODY_PROBLEMS = [408, 413, 415];

/**
 * The document of an app.
 *
 * @param named schemas of other parts of the product, by the name that they have in the document
 */
export function openApi(
  routes: readonly RouteDoc[],
  { version, named = {} }: { version: string; named?: Readonly<Record<string, z.ZodType>> },
): OpenApi {
  const refs = new SchemaRefs({ ...NAMED, ...named });
  const paths: Record<string, Record<string, JsonObject>> = {};
  for (const route of routes) {
    const methods = paths[route.path] ?? {};
    methods[route.method.toLowerCase()] = operation(route, refs);
    paths[route.path] = methods;
  }
  return {
    openapi: "3.1.1",
    info: {
      title: "cprg",
      version,
      description: "Runs programs that nobody has to trust. Errors are RFC 9457 problem documents.",
      license: { name: "MIT", identifier: "MIT" },
    },
    paths,
    components: {
      schemas: refs.components(),
      securitySchemes: { key: { type: "http", scheme: "bearer" } },
    },
  };
}

function operation(route: RouteDoc, refs: SchemaRefs): JsonObject {
  const { summary, description, tag, access } = route;
  return {
    operationId: operationId(route),
    tags: [tag],
    summary,
    ...(description === undefined ? {} : { description }),
    security: access === "none" ? [] : [{ key: [] }],
    ...(access === "admin" ? { "x-admin": true } : {}),
    parameters: parametersOf(route),
    ...requestBody(route, refs),
    responses: responses(route, refs),
  };
}

/** Bytes may be none, and have no schema. */
function requestBody({ body, bytes }: RouteDoc, refs: SchemaRefs): JsonObject {
  if (body !== undefined) {
    const content = { "application/json": { schema: refs.of(body) } };
    return { requestBody: { required: true, content } };
  }
  if (bytes === undefined) return {};
  return { requestBody: { content: Object.fromEntries(bytes.map((type) => [type, {}])) } };
}

/** `get_v1_jobs_id_result`. */
function operationId({ method, path }: RouteDoc): string {
  const words = path.split(/[^A-Za-z0-9]+/).filter((word) => word !== "");
  return [method.toLowerCase(), ...words].join("_");
}

function parametersOf({ path, parameters = {}, headers = {} }: RouteDoc): JsonObject[] {
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? "");
  const inPath = names.map((name) => ({
    name,
    in: "path",
    required: true,
    schema: { type: "string" },
  }));
  const inHeader = Object.entries(headers).map(([name, description]) => ({
    name,
    in: "header",
    description,
    schema: { type: "string" },
  }));
  return [...inPath, ...queryParameters(parameters), ...inHeader];
}

function queryParameters(parameters: Parameters): JsonObject[] {
  return Object.entries(parameters).map(([name, type]) => {
    const { description, ...schema } = parameterSchema(type);
    return { name, in: "query", ...(description === undefined ? {} : { description }), schema };
  });
}

function responses(route: RouteDoc, refs: SchemaRefs): JsonObject {
  const documented = Object.entries(route.answers).map(([status, answer]) => [
    status,
    { description: answer.description, ...contentOf(answer, refs) },
  ]);
  const content = { "application/problem+json": { schema: refs.of(answers.problem) } };
  const problems = problemStatuses(route)
    .filter((status) => route.answers[status] === undefined)
    .map((status) => [String(status), { description: "A problem.", content }]);
  return Object.fromEntries([...documented, ...problems]);
}

/** Statuses of problems that a route may answer with. */
function problemStatuses({ path, access, body, problems = [] }: RouteDoc): number[] {
  const all = [
    ...EVERY_PROBLEM,
    ...(access === "none" ? [] : KEY_PROBLEMS),
    ...(path.includes("{") ? [404] : []),
    ...(body === undefined ? [] : BODY_PROBLEMS),
    ...problems,
  ];
  return [...new Set(all)].sort((a, b) => a - b);
}

function contentOf({ content = {} }: AnswerDoc, refs: SchemaRefs): JsonObject {
  const types = Object.entries(content).map(([type, schema]) => [
    type,
    schema === null ? {} : { schema: refs.of(schema) },
  ]);
  return types.length === 0 ? {} : { content: Object.fromEntries(types) };
}

/** Named schemas once in `components`, and what refers to them. */
class SchemaRefs {
  readonly #registry = z.registry<{ id: string }>();

  constructor(named: Readonly<Record<string, z.ZodType>>) {
    for (const [id, schema] of Object.entries(named)) this.#registry.add(schema, { id });
  }

  /** @throws when a schema has no name: every body and answer has one */
  of(schema: z.ZodType): JsonObject {
    const id = this.#registry.get(schema)?.id;
    if (id === undefined) throw new Error("BUG(cprg): a schema of a route has no name");
    return { $ref: refOf(id) };
  }

  components(): OpenApi["components"]["schemas"] {
    const { schemas: all } = z.toJSONSchema(this.#registry, { uri: refOf, io: "input" });
    const entries = Object.entries(all).map(([id, { $id: _, $schema: __, ...schema }]) => [
      id,
      schema,
    ]);
    return Object.fromEntries(entries);
  }
}

function refOf(id: string): string {
  return `#/components/schemas/${id}`;
}
