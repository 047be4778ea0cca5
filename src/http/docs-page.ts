/**
 * `/docs`: the description as one page of HTML, without script and without anything from elsewhere,
 * which is what its policy says too.
 */

import type { JsonObject, OpenApi } from "./openapi.ts";

const STYLE = `
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 0.9em/1.4 ui-monospace, monospace; }
pre { overflow-x: auto; padding: 0.75rem; border: 1px solid #8886; border-radius: 6px; }
section { border-top: 1px solid #8886; margin-top: 1.5rem; }
td, th { text-align: left; vertical-align: top; padding: 0.15rem 1rem 0.15rem 0; }
`;

const STYLE_HASH = new Bun.CryptoHasher("sha256").update(STYLE).digest("base64");

/** Nothing runs, nothing is fetched, nobody frames it. */
export const DOCS_POLICY = [
  "default-src 'none'",
  `style-src 'sha256-${STYLE_HASH}'`,
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** The page. */
export function docsPage(document: OpenApi, version: string): string {
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => section(method, { path, operation })),
  );
  const schemas = Object.entries(document.components.schemas).map(
    ([name, schema]) =>
      `<section id="${escapeHtml(name)}"><h3>${escapeHtml(name)}</h3>${pre(schema)}</section>`,
  );
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>cprg API</title>
<meta name="viewport" content="width=device-width"><style>${STYLE}</style></head>
<body><h1>cprg API ${escapeHtml(version)}</h1>
<p>Send <code>Authorization: Bearer KEY</code>. The same as
<a href="/openapi.json">OpenAPI 3.1</a>.</p>
${operations.join("\n")}
<h2>Schemas</h2>
${schemas.join("\n")}
</body></html>
`;
}

function section(
  method: string,
  { path, operation }: { path: string; operation: JsonObject },
): string {
  const { summary, description = "", parameters, requestBody, responses } = operation;
  const body = requestBody === undefined ? "" : `<h4>Body</h4><p>${linksOf(requestBody)}</p>`;
  return `<section><h3><code>${escapeHtml(`${method.toUpperCase()} ${path}`)}</code></h3>
<p>${escapeHtml(String(summary))}. ${escapeHtml(String(description))}</p>
${parameterTable(parameters as readonly JsonObject[])}${body}
<h4>Answers</h4><table>${answerRows(responses as JsonObject)}</table></section>`;
}

function parameterTable(parameters: readonly JsonObject[]): string {
  if (parameters.length === 0) return "";
  const rows = parameters.map(({ name, in: place, description = "", schema }) => {
    const cells = [String(name), String(place), JSON.stringify(schema), String(description)];
    return `<tr>${cells.map((cell) => `<td>${escapeHtml(cell)}</td>`).join("")}</tr>`;
  });
  return `<h4>Parameters</h4><table>${rows.join("")}</table>`;
}

function answerRows(responses: JsonObject): string {
  return Object.entries(responses)
    .map(([status, answer]) => {
      const { description } = answer as { description: string };
      const cells = [escapeHtml(status), escapeHtml(description), linksOf(answer)];
      return `<tr>${cells.map((cell) => `<td>${cell}</td>`).join("")}</tr>`;
    })
    .join("");
}

/** Links to the schemas that something refers to. */
function linksOf(part: unknown): string {
  const names = [...JSON.stringify(part).matchAll(/"#\/components\/schemas\/(\w+)"/g)];
  return [...new Set(names.map(([, name]) => name ?? ""))]
    .map((name) => `<a href="#${escapeHtml(name)}">${escapeHtml(name)}</a>`)
    .join(" ");
}

function pre(value: unknown): string {
  return `<pre>${escapeHtml(JSON.stringify(value, null, 2))}</pre>`;
}

function escapeHtml(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;")
    .replaceAll("'", "&#39;");
}
