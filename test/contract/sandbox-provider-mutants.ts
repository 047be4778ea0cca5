// Providers that break one duty each. A suite that lets one of them pass proves nothing.

import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { SandboxLease, SandboxProvider } from "../../src/provider/contract.ts";
import type { ProviderUnderTest } from "./sandbox-provider-check.ts";

/** A broken provider and the one check that must notice. */
export interface ProviderMutant {
  readonly breaks: string;
  mutate(subject: ProviderUnderTest): ProviderUnderTest;
}

/** Replaces parts of every lease. */
function lease(
  breaks: string,
  change: (real: SandboxLease) => Partial<SandboxLease>,
): ProviderMutant {
  return provider(breaks, (real) => ({
    acquire: async (context) => {
      const opened = await real.acquire(context);
      return { ...opened, ...change(opened) };
    },
  }));
}

function provider(
  breaks: string,
  change: (real: SandboxProvider) => Partial<SandboxProvider>,
): ProviderMutant {
  return {
    breaks,
    mutate: (subject) => ({
      ...subject,
      provider: Object.freeze({ ...subject.provider, ...change(subject.provider) }),
    }),
  };
}

/** One for a duty. */
export const PROVIDER_MUTANTS: readonly ProviderMutant[] = [
  {
    breaks: "provider.shape",
    mutate: (subject) => ({ ...subject, provider: { ...subject.provider } }),
  },
  provider("acquire.recovery", (real) => ({
    acquire: async (context) => {
      const { registerRecovery, ...rest } = context;
      const opened = await real.acquire(rest);
      await registerRecovery?.("too late");
      return opened;
    },
  })),
  provider("acquire.signal", (real) => ({
    acquire: ({ signal: _, ...rest }) => real.acquire(rest),
  })),
  provider("acquire.variables", (real) => ({
    acquire: (context) => real.acquire({ ...context, variables: {} }),
  })),
  lease("invoke.signal-status", (real) => ({
    invoke: async (command) => {
      const result = await real.invoke(command);
      return result.status > 128 ? { ...result, status: 1 } : result;
    },
  })),
  lease("invoke.streams", (real) => ({
    invoke: async (command) => {
      const result = await real.invoke(command);
      return result.stdout === "out\n" && result.stderr === "err\n"
        ? { ...result, stdout: "out\nerr\n" }
        : result;
    },
  })),
  lease("invoke.observe", (real) => ({
    invoke: ({ observe, ...command }) =>
      real.invoke({
        ...command,
        ...(observe === undefined
          ? {}
          : {
              observe: (channel, text) => observe(channel, Buffer.from(text).toString("latin1")),
            }),
      }),
  })),
  lease("invoke.retain", (real) => ({
    invoke: async ({ retain, ...command }) => {
      const result = await real.invoke({ ...command, retain: 10_000_000 });
      return retain === undefined ? result : { ...result, stdout: result.stdout.slice(0, retain) };
    },
  })),
  lease("invoke.cancel", (real) => ({
    invoke: ({ signal, ...command }) =>
      Promise.race([
        real.invoke(command),
        new Promise<never>((_, reject) => {
          signal?.addEventListener("abort", () => reject(new Error("gone, so to say")));
        }),
      ]),
  })),
  lease("invoke.deadline", (real) => ({
    invoke: ({ deadlineMs: _, ...command }) => real.invoke(command),
  })),
  lease("transfer.bytes", (real) => ({
    download: async (source, destination, options) => {
      await real.download(source, destination, options);
      const file = Bun.file(destination);
      if (file.size === 70_000) writeFileSync(destination, await file.text());
    },
  })),
  lease("transfer.modes", (real) => ({
    upload: async (source, destination, options) => {
      await real.upload(source, destination, options);
      if (destination.includes("/mode-")) {
        await real.invoke({ executable: "chmod", arguments: ["644", destination] });
      }
    },
  })),
  lease("transfer.missing", (real) => ({
    upload: async (source, destination, options) => {
      if (await Bun.file(source).exists()) return real.upload(source, destination, options);
      const isDirectory = await real.upload(source, destination, options).then(
        () => true,
        () => false,
      );
      if (!isDirectory) return;
    },
  })),
  lease("transfer.staging", (real) => ({
    download: async (source, destination, options) => {
      if (source.endsWith("/absent") && destination.endsWith("/absent")) {
        writeFileSync(join(dirname(destination), ".stage"), "");
      }
      return real.download(source, destination, options);
    },
  })),
  lease("release.twice", (real) => {
    let isReleased = false;
    return {
      release: async () => {
        if (isReleased) throw new Error("released already");
        isReleased = true;
        await real.release();
      },
    };
  }),
];
