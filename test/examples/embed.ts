// A control plane inside a program of your own, on Node 20 or newer. It lets one worker in with a
// token that it mints, has a runner of its own, and keeps everything in memory.
//
//   node embed.js     prints where it listens and a token, does one task, and ends

import { ControlPlane } from "../../src/sdk/control-plane.ts";

const plane = new ControlPlane();

// A runner is a function: the task's input, and a claimed worker as a lease.
plane.setRunner("greet", async (input, { lease, note }) => {
  const { name } = input as { name: string };
  await note(`greeting ${name}`);
  await lease.invoke({
    executable: "/bin/sh",
    arguments: ["-c", "cat > greeting.txt"],
    stdin: `hello, ${name}`,
  });
  const { status, stdout } = await lease.invoke({
    executable: "/bin/cat",
    arguments: ["greeting.txt"],
  });
  return { status, greeting: stdout };
});

const { port } = await plane.serve({ host: "127.0.0.1", port: 0 });
const { token } = await plane.mintWorkerToken({ workerId: "*", expiresInSeconds: 600 });
console.log(JSON.stringify({ port, token }));

const { id } = await plane.submit({ name: "world" }, { runner: "greet" });
const task = await plane.waitTask(id);
console.log(JSON.stringify({ status: task.status, result: task.result, error: task.error }));
await plane.stop();
