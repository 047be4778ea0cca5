// An agent inside a program of your own, on Node 20 or newer: a model does one task on a worker.
//
//   MODEL_URL=http://... MODEL_KEY=... node embed-agent.js "make a file"

import { agentRunner, ControlPlane } from "../../src/sdk/control-plane.ts";

const { MODEL_URL: baseUrl = "", MODEL_KEY: apiKey = "" } = process.env;

const plane = new ControlPlane();
// The key stays in this process; the worker gets what the model asks for, and nothing else.
plane.setRunner(
  agentRunner("compatible:any-model", { baseUrl, apiKey, budget: { steps: 10, wallSeconds: 60 } }),
);

const { port } = await plane.serve({ host: "127.0.0.1", port: 0 });
const { token } = await plane.mintWorkerToken({ workerId: "*", expiresInSeconds: 600 });
console.log(JSON.stringify({ port, token }));

const { id } = await plane.submit(process.argv[2] ?? "say hello");
const task = await plane.waitTask(id);
console.log(JSON.stringify({ status: task.status, result: task.result, error: task.error }));
await plane.stop();
