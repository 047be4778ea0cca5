import { describe, expect, test } from "bun:test";
import { memoryArtifacts } from "../../src/store/memory-artifacts.ts";
import { KEY_B, python, useApp, useServer } from "./fixture.ts";

const HTML = "<script>alert(1)</script>";

async function endedJob(ask: Awaited<ReturnType<typeof useApp>>["ask"]): Promise<string> {
  const { json } = await ask("/v1/jobs", { body: python("1") });
  await ask(`/v1/jobs/${json.job_id}/result`);
  return json.job_id;
}

describe("files of a job", () => {
  test("are kept after its end, listed and read", async () => {
    const names = ["index.html", "a b/é\"\n%41'.txt", "empty", "😀"];
    const artifacts = Object.fromEntries(names.map((name) => [name, name === "empty" ? "" : HTML]));
    const { ask, provider } = await useApp({ fake: { artifacts } });
    const id = await endedJob(ask);
    expect(provider.open_).toBe(0);
    const list = (await ask(`/v1/jobs/${id}/files`)).json;
    expect(list).toMatchObject({ job_id: id, problem: null, next_cursor: null });
    expect(list.files.map(({ path }: { path: string }) => path)).toEqual(names);
    expect(list.files[0]).toEqual({ path: "index.html", size: HTML.length, mode: 0o644 });
    for (const name of names) {
      const encoded = name.split("/").map(encodeURIComponent).join("/");
      const file = await ask(`/v1/jobs/${id}/files/${encoded}`);
      expect([name, file.status, file.text]).toEqual([name, 200, artifacts[name] ?? ""]);
    }
  });

  test("are saved by browsers, and never run", async () => {
    await using server = await useServer({ fake: { artifacts: { "x/evil'(.html": HTML } } });
    const id = await endedJob(server.ask);
    const { headers } = await server.ask(`/v1/jobs/${id}/files/x/evil'(.html`);
    expect(headers.get("content-type")).toBe("application/octet-stream");
    expect(headers.get("content-disposition")).toBe("attachment; filename*=UTF-8''evil%27%28.html");
    expect(headers.get("x-content-type-options")).toBe("nosniff");
    expect(headers.get("content-security-policy")).toBe("default-src 'none'; sandbox");
    expect(headers.get("access-control-allow-origin")).toBeNull();
  });

  test("are nobody else's, and only what is listed", async () => {
    const { ask } = await useApp({ fake: { artifacts: { "a/b": "1" } } });
    const id = await endedJob(ask);
    for (const path of ["/files", "/files/a/b"]) {
      expect((await ask(`/v1/jobs/${id}${path}`, { key: KEY_B })).json.reason).toBe(
        "JOB_NOT_FOUND",
      );
    }
    for (const path of ["a", "b", "a/b/", "A/b", "..%2F..%2Fetc%2Fpasswd", "%00", "a//b"]) {
      const answer = await ask(`/v1/jobs/${id}/files/${path}`);
      expect([path, answer.status, answer.json.reason]).toEqual([path, 404, "FILE_NOT_FOUND"]);
    }
    expect((await ask(`/v1/jobs/${id}/files/%ff`)).json).toMatchObject({
      status: 400,
      field: "path",
    });
  });

  test("are found by what the address says, however it is encoded", async () => {
    const { ask } = await useApp({ fake: { artifacts: { x: "1", "s/x": "2" } } });
    const encoded = (id: string) => `%${Buffer.from(id[0] ?? "").toString("hex")}${id.slice(1)}`;
    const job = await endedJob(ask);
    expect((await ask(`/v1/jobs/${encoded(job)}/files/x`)).text).toBe("1");
    const { sandbox_id: sandbox } = (await ask("/v1/sandboxes", { body: {} })).json;
    const headers = { "Content-Length": "1" };
    for (const [path, body] of [
      ["x", "3"],
      ["s/x", "4"],
      ["files/x", "5"],
    ] as const) {
      const put = { method: "PUT", body, headers };
      expect((await ask(`/v1/sandboxes/${sandbox}/files/${path}`, put)).status).toBe(204);
    }
    for (const id of [sandbox, encoded(sandbox)]) {
      expect((await ask(`/v1/sandboxes/${id}/files/x`)).text).toBe("3");
      expect((await ask(`/v1/sandboxes/${id}/%66iles/files/x`)).text).toBe("5");
    }
    await ask(`/v1/sandboxes/${encoded(sandbox)}/files/x`, { method: "DELETE" });
    expect((await ask(`/v1/sandboxes/${sandbox}/files/s/x`)).text).toBe("4");
  });

  test("that cannot be kept leave the reason, and the job as it ended", async () => {
    const bounds = { jobBytesMax: 10, jobFilesMax: 5, bytesMax: 100, jobsMax: 10 };
    const many = await useApp({
      fake: { artifacts: { big: "x".repeat(11) } },
      service: { artifacts: memoryArtifacts(bounds) },
    });
    const id = await endedJob(many.ask);
    const list = (await many.ask(`/v1/jobs/${id}/files`)).json;
    expect(list).toMatchObject({ files: [], problem: "11 bytes, at most 10 are kept" });
    expect((await many.ask(`/v1/jobs/${id}`)).json.status).toBe("succeeded");
    const broken = await useApp({ fake: { artifacts: new Error("secret") } });
    const other = await endedJob(broken.ask);
    const { problem } = (await broken.ask(`/v1/jobs/${other}/files`)).json;
    expect(problem).toBe("The server failed to keep them");
    expect((await broken.ask(`/v1/jobs/${other}`)).json.status).toBe("succeeded");
  });
});
