// Answers held against the description of an API.

import Ajv, { type ValidateFunction } from "ajv/dist/2020";
import type { Operation } from "./requests.ts";
import type { Schema } from "./values.ts";

/** What is looked at of an answer. */
export interface Answered {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

/** Checks answers. */
export class AnswerCheck {
  readonly #ajv = new Ajv({ strict: false, validateFormats: false, allErrors: false });
  readonly #compiled = new Map<string, ValidateFunction>();

  constructor(document: Schema) {
    this.#ajv.addSchema({ $id: "api", components: document["components"] });
  }

  /** What is wrong with an answer, or null. */
  problem(operation: Operation, { status, headers, text }: Answered): string | null {
    if (status >= 500) return `it failed: ${text}`;
    const response = operation.responses[status];
    if (response === undefined) return `status ${status} is not described`;
    const content: Schema = response["content"] ?? {};
    const type = (headers.get("content-type") ?? "").split(";")[0] ?? "";
    const described = Object.entries<Schema>(content).find(([name]) => name.split(";")[0] === type);
    if (described === undefined) {
      return text === "" ? null : `type "${type}" of ${status} is not described`;
    }
    const ref: string | undefined = described[1]["schema"]?.["$ref"];
    return ref === undefined || text === "" ? null : this.#mismatch(ref, text);
  }

  #mismatch(ref: string, text: string): string | null {
    const validate = this.#compiled.get(ref) ?? this.#ajv.compile({ $ref: `api${ref}` });
    this.#compiled.set(ref, validate);
    if (validate(JSON.parse(text))) return null;
    return `${this.#ajv.errorsText(validate.errors)}: ${text.slice(0, 500)}`;
  }
}
