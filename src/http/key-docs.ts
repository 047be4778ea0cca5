/** Routes of administrators, described: keys, and the audit log. */

import { key, keyList, madeKey } from "./key-answers.ts";
import { keyBody, rotateBody } from "./key-schemas.ts";
import { keyListParameters } from "./parameters.ts";
import { json, type RouteDoc } from "./route-doc.ts";

const ofKey = { tag: "keys", access: "admin" } as const;

/** Every route beneath `/v1/keys`, and `/v1/audit`. */
export const ADMIN_ROUTES: readonly RouteDoc[] = [
  {
    ...ofKey,
    method: "POST",
    path: "/v1/keys",
    summary: "Make a key, which is shown this once",
    body: keyBody,
    answers: { 201: json("It holds.", madeKey) },
  },
  {
    ...ofKey,
    method: "GET",
    path: "/v1/keys",
    summary: "List keys, oldest first, revoked ones too",
    parameters: keyListParameters,
    answers: { 200: json("A page.", keyList) },
  },
  {
    ...ofKey,
    method: "GET",
    path: "/v1/keys/{id}",
    summary: "Look at a key",
    answers: { 200: json("The key.", key) },
  },
  {
    ...ofKey,
    method: "DELETE",
    path: "/v1/keys/{id}",
    summary: "Revoke a key: nothing passes with it any more, and its streams end",
    answers: { 200: json("It is revoked.", key) },
  },
  {
    ...ofKey,
    method: "POST",
    path: "/v1/keys/{id}/rotate",
    summary: "Make a key like another, which ends after an overlap",
    body: rotateBody,
    answers: { 201: json("The new one, shown this once.", madeKey) },
    problems: [409],
  },
  {
    tag: "audit",
    access: "admin",
    method: "GET",
    path: "/v1/audit",
    summary: "Who did what, sealed for cprg verify",
    answers: {
      200: { description: "The log as it is now.", content: { "application/x-ndjson": null } },
    },
  },
];
