import { describe, expect, test } from "bun:test";
import { ROUTES } from "../../src/http/app.ts";
import { useApp } from "./fixture.ts";

/** Routes as the app has them, in the words of OpenAPI. */
function routesOf(app: { routes: readonly { method: string; path: string }[] }): string[] {
  const routes = app.routes
    .filter(({ method }) => method !== "ALL")
    .map(
      ({ method, path }) => `${method} ${path.replace(/:(\w+)/g, "{$1}").replace(/\*$/, "{path}")}`,
    );
  return [...new Set(routes)].sort();
}

describe("/openapi.json", () => {
  test("describes every route, and no other", async () => {
    const { app, ask } = await useApp();
    const document = (await ask("/openapi.json", { key: null })).json;
    const described = Object.entries<object>(document.paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(described.sort()).toEqual(routesOf(app));
    expect(new Set(described).size).toBe(ROUTES.length);
  });

  test("needs no key, says so, and is whole", async () => {
    const { ask } = await useApp();
    const answer = await ask("/openapi.json", { key: null });
    expect(answer.status).toBe(200);
    const { openapi, info, paths, components } = answer.json;
    expect(openapi).toBe("3.1.1");
    expect(info.version).toBe("1.2.3");
    expect(paths["/v1/jobs"].post.security).toEqual([{ key: [] }]);
    expect(paths["/healthz"].get.security).toEqual([]);
    const refs = [...answer.text.matchAll(/"\$ref":"#\/components\/schemas\/([^"]+)"/g)];
    expect(refs.length).toBeGreaterThan(20);
    for (const [, name] of refs) expect(components.schemas).toHaveProperty(name ?? "");
    const ids = Object.values<Record<string, { operationId: string }>>(paths).flatMap((methods) =>
      Object.values(methods).map(({ operationId }) => operationId),
    );
    expect(new Set(ids).size).toBe(ids.length);
  });

  test("says that a server may be called by a name that is not its own", async () => {
    const { ask } = await useApp();
    const { paths } = (await ask("/openapi.json", { key: null })).json;
    const operations = Object.values(paths as Record<string, object>).flatMap(Object.values);
    expect(operations.filter(({ responses }) => !("421" in responses))).toEqual([]);
  });

  test("says what requests are read with", async () => {
    const { ask } = await useApp();
    const { paths, components } = (await ask("/openapi.json")).json;
    const limit = paths["/v1/jobs"].get.parameters.find(
      ({ name }: { name: string }) => name === "limit",
    );
    expect(limit.schema).toEqual({ type: "integer", minimum: 1, maximum: 500, default: 50 });
    expect(Object.keys(components.schemas.JobRequest.properties)).toContain("kill_grace_seconds");
    expect(components.schemas.JobRequest.additionalProperties).toBe(false);
    expect(components.schemas.Job.required).not.toContain("waiting");
  });
});

test("/docs is a page without script, whose policy holds", async () => {
  const { ask } = await useApp();
  const page = await ask("/docs", { key: null });
  expect(page.status).toBe(200);
  expect(page.headers.get("content-type")).toStartWith("text/html");
  const policy = page.headers.get("content-security-policy") ?? "";
  expect(policy).toStartWith("default-src 'none'; style-src 'sha256-");
  const style = /<style>([\s\S]*?)<\/style>/.exec(page.text)?.[1] ?? "";
  expect(policy).toContain(new Bun.CryptoHasher("sha256").update(style).digest("base64"));
  expect(page.text).not.toMatch(/<script|<link|<img|\son\w+=|https?:/i);
  for (const { path } of ROUTES) expect(page.text).toContain(path);
});
