// Drives plane.ts, which may be killed at any moment.

import { join } from "node:path";

/** How a task ended. */
export interface TaskEnded {
  readonly status: string;
  readonly reason: string | null;
  readonly attempts: number;
  /** The error of one that failed. */
  readonly why: string | null;
}

type Answer = Record<string, unknown>;

/** One control plane. */
export class PlaneProcess {
  readonly pid: number;
  readonly exited: Promise<number>;
  readonly port: Promise<number>;
  readonly #child: Bun.Subprocess<"pipe", "pipe", "inherit">;
  readonly #port = Promise.withResolvers<number>();
  readonly #waiting = new Map<string, (answer: Answer | null) => void>();

  constructor(directory: string, port: number) {
    this.#child = Bun.spawn(
      [process.execPath, join(import.meta.dir, "plane.ts"), directory, String(port)],
      { stdin: "pipe", stdout: "pipe", stderr: "inherit" },
    );
    this.pid = this.#child.pid;
    this.exited = this.#child.exited;
    this.port = this.#port.promise;
    void this.#read();
  }

  /** @throws when it refused the task, or died before it answered */
  async submit(id: string, witness: string): Promise<void> {
    await this.#call({ id, witness });
  }

  /** Null when it died before it could tell. */
  async ended(id: string): Promise<TaskEnded | null> {
    const answer = await this.#call({ id }).catch(() => null);
    if (answer === null) return null;
    const { status, reason, attempts, why } = answer as unknown as TaskEnded;
    return { status, reason, attempts, why };
  }

  async rss(): Promise<number> {
    return Number((await this.#call({}))["rss"]);
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  async #call(fields: object): Promise<Answer> {
    const call = crypto.randomUUID();
    const answered = new Promise<Answer | null>((resolve) => this.#waiting.set(call, resolve));
    try {
      this.#child.stdin.write(`${JSON.stringify({ call, ...fields })}\n`);
      await this.#child.stdin.flush();
    } catch {
      throw new Error("the control plane died");
    }
    const answer = await answered;
    if (answer === null) throw new Error("the control plane died");
    if (answer["error"] !== undefined) throw new Error(String(answer["error"]));
    return answer;
  }

  async #read(): Promise<void> {
    let text = "";
    const decoder = new TextDecoder();
    for await (const bytes of this.#child.stdout) {
      text += decoder.decode(bytes, { stream: true });
      const lines = text.split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) this.#heard(JSON.parse(line) as Answer);
    }
    for (const resolve of this.#waiting.values()) resolve(null);
    this.#port.reject(new Error("the control plane died before it listened"));
  }

  #heard(answer: Answer): void {
    if (answer["port"] !== undefined) this.#port.resolve(Number(answer["port"]));
    const call = String(answer["call"]);
    this.#waiting.get(call)?.(answer);
    this.#waiting.delete(call);
  }
}
