// A TCP proxy of the tests' own: it cuts, freezes and delays connections where a test says.

import { createServer, connect as dialTcp, type Socket } from "node:net";

export interface CuttingProxy {
  readonly port: number;
  /** Connections that were made so far. */
  readonly connections: number;
  /** Cuts the connection there is, or the next, once it has carried so many more bytes to the control plane. */
  cutAfter(bytes: number): void;
  /** Cuts what is open, now. */
  cut(): void;
  /** Accepts no connection until it is told so again. */
  refuse(isRefusing: boolean): void;
  /** Carries nothing, in either direction, until it is thawed; connections stay. */
  freeze(): void;
  thaw(): void;
  /** Sees what comes from the control plane; true cuts before it is passed on. */
  onDown(see: (bytes: Uint8Array) => boolean): void;
  close(): Promise<void>;
}

/** Starts one in front of a port of this host. */
export async function startProxy(target: number): Promise<CuttingProxy> {
  const pairs = new Set<readonly [Socket, Socket]>();
  let connections = 0;
  let leftBytes = Number.POSITIVE_INFINITY;
  let isRefusing = false;
  let isFrozen = false;
  let see: (bytes: Uint8Array) => boolean = () => false;
  const cut = (): void => {
    leftBytes = Number.POSITIVE_INFINITY;
    for (const pair of pairs) for (const socket of pair) socket.destroy();
    pairs.clear();
  };
  const carry = (from: Socket, to: Socket, passes: (bytes: Uint8Array) => boolean): void => {
    from.on("data", (bytes: Buffer) => {
      if (!passes(bytes)) return cut();
      if (!to.write(bytes)) from.pause();
    });
    to.on("drain", () => {
      if (!isFrozen) from.resume();
    });
    from.on("error", () => undefined);
    from.on("close", () => to.destroy());
  };
  const server = createServer((worker) => {
    if (isRefusing) {
      worker.destroy();
      return;
    }
    connections += 1;
    const plane = dialTcp(target, "127.0.0.1");
    const pair = [worker, plane] as const;
    pairs.add(pair);
    worker.on("close", () => pairs.delete(pair));
    carry(worker, plane, (bytes) => {
      leftBytes -= bytes.length;
      return leftBytes > 0;
    });
    carry(plane, worker, (bytes) => !see(bytes));
    if (isFrozen) for (const socket of pair) socket.pause();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    port: (server.address() as { port: number }).port,
    get connections() {
      return connections;
    },
    cutAfter: (bytes) => {
      leftBytes = bytes;
    },
    cut,
    refuse: (refusing) => {
      isRefusing = refusing;
    },
    freeze: () => {
      isFrozen = true;
      for (const pair of pairs) for (const socket of pair) socket.pause();
    },
    thaw: () => {
      isFrozen = false;
      for (const pair of pairs) for (const socket of pair) socket.resume();
    },
    onDown: (seer) => {
      see = seer;
    },
    close: () => {
      cut();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}
