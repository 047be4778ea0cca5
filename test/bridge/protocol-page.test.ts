// PROTOCOL.md, the .proto files, src/gen and the tables in the code say the same.

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import protobuf from "protobufjs";
import * as limits from "../../src/bridge/limits.ts";
import * as methods from "../../src/bridge/methods.ts";
import { HTTP_STATUS } from "../../src/core/errors.ts";
import { generatedFiles } from "../gen/write-protobuf.ts";

const top = join(import.meta.dir, "../..");
const page = readFileSync(join(top, "proto/PROTOCOL.md"), "utf8");

/** Every message, as `name: number type rule` lines of its fields. */
function described(root: protobuf.Root): Record<string, string[]> {
  root.resolveAll();
  const messages: Record<string, string[]> = {};
  const visit = (space: protobuf.NamespaceBase): void => {
    for (const nested of space.nestedArray) {
      if (nested instanceof protobuf.Type) {
        messages[nested.name] = nested.fieldsArray.map((field) => {
          const key = field instanceof protobuf.MapField ? `map ${field.keyType}` : "";
          const group = field.partOf === null ? "" : field.partOf.name;
          const type = field.resolvedType?.name ?? field.type;
          return [field.id, field.name, type, field.repeated, key, group].join(" ");
        });
      }
      if (nested instanceof protobuf.Enum) {
        messages[nested.name] = Object.entries(nested.values).map((value) => value.join(" "));
      }
      if (nested instanceof protobuf.Namespace) visit(nested);
    }
  };
  visit(root);
  return messages;
}

test("the messages of the page are those of the .proto files", () => {
  const blocks = [...page.matchAll(/^```proto\n([\s\S]*?)^```/gm)].map(([, text]) => text);
  const written = protobuf.parse(`syntax = "proto3";\n${blocks.join("\n")}`).root;
  const files = new protobuf.Root();
  files.resolvePath = (_, target) => (target.startsWith("/") ? target : join(top, "proto", target));
  files.loadSync(
    [...new Bun.Glob("proto/**/*.proto").scanSync({ cwd: top })].map((path) => join(top, path)),
  );
  expect(described(written)).toEqual(described(files));
});

test("the methods of the page are those of the code", () => {
  const kinds: Record<string, string> = {
    unary: "unary",
    "server streaming": "serverStream",
    "client streaming": "clientStream",
    notice: "notice",
    "unary with `heartbeat.ack`, else notice": "unary",
  };
  const section = page.slice(page.indexOf("## 9."), page.indexOf("### Claiming"));
  const rows = [
    ...section.matchAll(/^\| `([^`]+)` \| ([^|]+) \| [^|]+ \| `(\w+)` \| (?:`(\w+)` )?\|$/gm),
  ];
  const written = rows.map(([, name, kind = "", request, response]) => [
    name,
    kinds[kind],
    request,
    response,
  ]);
  const typesOf = readFileSync(join(top, "src/bridge/methods.ts"), "utf8");
  const inCode = Object.values(methods)
    .filter((each) => typeof each === "object")
    .filter((each) => each !== methods.HEARTBEAT_NOTICE)
    .map(({ name, kind }) => {
      const call = new RegExp(`"${name}", (?:\\["(\\w+)", "(\\w+)"\\]|"(\\w+)")`).exec(typesOf);
      return [name, kind, call?.[1] ?? call?.[3], call?.[2]];
    });
  const byName = (a: unknown[], b: unknown[]): number => (`${a[0]}` < `${b[0]}` ? -1 : 1);
  expect(written.sort(byName)).toEqual(inCode.sort(byName));
  expect(written.length).toBeGreaterThan(20);
});

test("the codes of the page are those of the code", () => {
  const section = page.slice(page.indexOf("## 10."));
  const line = section.split("\n").find((each) => each.startsWith("`canceled`")) ?? "";
  const written = [...line.matchAll(/`(\w+)`/g)].map(([, code]) => code);
  expect(written.sort()).toEqual(Object.keys(HTTP_STATUS).sort());
});

test("the numbers of the page are those of limits.ts", () => {
  const { MESSAGE_BYTES_MAX, ITEM_BYTES_MAX, UNARY_BYTES_MAX, READ_BYTES_MAX } = limits;
  const written = [MESSAGE_BYTES_MAX, ITEM_BYTES_MAX, UNARY_BYTES_MAX, READ_BYTES_MAX];
  for (const bytes of [...written, limits.CREDIT_BYTES]) {
    expect(page).toContain(`(${bytes.toLocaleString("en").replaceAll(",", " ")}`);
  }
  expect(page).toContain(`at most 8 KiB (${limits.METADATA_BYTES_MAX}`);
  expect(page).toContain(`at most ${limits.ERROR_BYTES_MAX} bytes`);
  expect(page).toContain(`1 to ${limits.NAME_BYTES_MAX} bytes`);
  expect(page).toContain(`beyond ${limits.OPEN_CALLS_MAX} open calls`);
  expect(page).toContain(`the last ${limits.EARLY_ANSWERS_MAX} such calls`);
  expect(page).toContain(`have not come after ${limits.HEADERS_MS_MAX / 1000} s`);
  expect(page).toContain(`More than ${limits.DROPPED_FRAMES_MAX} dropped`.toLowerCase());
  expect(page).toContain(`the length of its payload plus ${limits.ITEM_COST_BYTES}`);
});

test("src/gen is what make gen writes", () => {
  for (const [name, text] of Object.entries(generatedFiles())) {
    expect(readFileSync(join(top, "src/gen", name), "utf8") === text).toBe(true);
  }
});
