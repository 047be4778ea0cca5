// The client of loop-block.ts: for each line on standard input, so many jobs at once.

const [url = "", key = "", parallel = ""] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
let count = 0;

for await (const _ of console) {
  await Promise.all(Array.from({ length: Number(parallel) }, () => runJob()));
  console.log("done");
}

async function runJob(): Promise<void> {
  count += 1;
  const body = JSON.stringify({
    language: "python",
    code: `for n in range(200): print(n, "x" * 200, flush=True)\nprint(${count})`,
  });
  const submitted = await fetch(`${url}/v1/jobs`, { method: "POST", headers, body });
  const { job_id } = (await submitted.json()) as { job_id: string };
  const response = await fetch(`${url}/v1/jobs/${job_id}/result?wait_seconds=60`, { headers });
  const result = (await response.json()) as { status: string; stdout: string };
  if (result.status !== "succeeded" || result.stdout.split("\n").length !== 202) {
    throw new Error(`job ${job_id}: ${JSON.stringify(result).slice(0, 500)}`);
  }
}
