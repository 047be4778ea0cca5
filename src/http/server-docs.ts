/** Routes about the server itself, described. */

import { health, index, languageList, serverStatus } from "./answers.ts";
import { PROMETHEUS_TYPE } from "./prometheus.ts";
import { json, type RouteDoc } from "./route-doc.ts";

const common = { tag: "server", method: "GET" } as const;

/** Every route that is no job's. */
export const SERVER_ROUTES: readonly RouteDoc[] = [
  {
    ...common,
    path: "/",
    summary: "What this is",
    access: "none",
    answers: { 200: json("Where to go on.", index) },
  },
  {
    ...common,
    path: "/healthz",
    summary: "Whether jobs can be kept now",
    access: "none",
    answers: { 200: json("They can.", health), 503: json("They cannot, for a reason.", health) },
  },
  {
    ...common,
    path: "/openapi.json",
    summary: "This description",
    access: "none",
    answers: { 200: { description: "OpenAPI 3.1.", content: { "application/json": null } } },
  },
  {
    ...common,
    path: "/docs",
    summary: "This description, for people",
    access: "none",
    answers: { 200: { description: "A page without scripts.", content: { "text/html": null } } },
  },
  {
    ...common,
    path: "/v1/status",
    summary: "What this server runs, and how strong its walls are",
    access: "key",
    answers: { 200: json("Counts are the tenant's own; an admin's are all.", serverStatus) },
  },
  {
    ...common,
    path: "/v1/languages",
    summary: "What programs can be written in",
    access: "key",
    answers: { 200: json("All of them.", languageList) },
  },
  {
    ...common,
    path: "/v1/metrics",
    summary: "Counts for Prometheus",
    access: "admin",
    answers: {
      200: { description: "Text exposition format.", content: { [PROMETHEUS_TYPE]: null } },
    },
  },
];
