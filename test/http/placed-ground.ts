// An app whose sandboxes and jobs are placed on real workers of a control plane.

import type { ControlPlaneCreateOptions } from "../../src/control-plane/control-plane-options.ts";
import { Feed } from "../../src/record/feed.ts";
import { memoryStore } from "../../src/store/memory-store.ts";
import { Ground } from "../control-plane/ground.ts";
import { type Ask, type FixtureOptions, useApp } from "./fixture.ts";

export interface PlacedOptions {
  readonly plane?: ControlPlaneCreateOptions;
  readonly app?: FixtureOptions;
}

/** Lets whatever else there is go on, between two looks: an app in memory answers without that. */
export async function pause(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 2));
}

/** The app and its workers; `await using` ends both. */
export async function usePlaced({ plane = {}, app = {} }: PlacedOptions = {}) {
  const store = plane.store ?? memoryStore();
  const feed = new Feed(store.events);
  const ground = await Ground.open({ store, feed, ...plane, ownsStore: false });
  const { pool } = ground.plane;
  const tasks = { control: ground.plane, feed, runners: {} };
  const shared = { pool, ...("jobs" in store ? { store: store as never, feed } : {}) };
  const used = await useApp({
    ...app,
    service: { ...shared, ...app.service },
    sandboxes: { ...shared, admissionWaitMs: 300, ...app.sandboxes },
    app: { tasks, ...app.app },
  });
  const create = async (body: object = {}, how: Ask = {}) =>
    await used.ask("/v1/sandboxes", { body: { placement: { labels: {} }, ...body }, ...how });
  return {
    ...used,
    ground,
    /** Asks for a sandbox on a worker. */
    create,
    /** Opens one; its view. */
    open: async (body: object = {}) => {
      const { status, json, text } = await create(body);
      if (status !== 201) throw new Error(`not opened: ${status} ${text}`);
      return json;
    },
    /** Runs a shell script in a sandbox to its end; its result. */
    sh: async (id: string, script: string, more: object = {}) => {
      const body = { argv: ["/bin/sh", "-c", script], ...more };
      return (await used.ask(`/v1/sandboxes/${id}/execs`, { body })).json;
    },
    /** A sandbox once it has ended. */
    ended: async (id: string) => {
      for (;;) {
        const { json } = await used.ask(`/v1/sandboxes/${id}`);
        if (json.status === "ended") return json;
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    },
    [Symbol.asyncDispose]: async () => {
      await used.jobs.stop(0);
      await used.options.sandboxes.stop(0);
      await ground[Symbol.asyncDispose]();
    },
  };
}
