import { afterAll, beforeAll, expect, test } from "bun:test";
import { closeSync, openSync } from "node:fs";
import { constants as osConstants } from "node:os";
import { requireHost } from "../helpers/host.ts";
import { type HostState, hostState, leftovers } from "./host-state.ts";
import { removeTemporaryDirectories, send } from "./native.ts";
import { initFd, Sandbox } from "./sandbox.ts";
import { encodeRequest, type Request, reportType, step } from "./wire.ts";

const { E2BIG, EBADF, EEXIST, EINVAL, EMSGSIZE, EPROTO } = osConstants.errno;

/** BPF that lets everything run. */
const allowAll = new Uint8Array(new Uint32Array([0x06, 0x7fff_0000]).buffer);

/** Requests whose filter is wrong in its place, size or kind. */
function filterRequests(id: number): [Uint8Array, number][] {
  const program = new Uint8Array(16);
  const base = {
    type: "exec",
    id,
    argv: ["/bin/true"],
    nullStdin: true,
    path: "/",
  } satisfies Request;
  const both = encodeRequest({ ...base, notify: program, kill: program });
  const patched = (offset: number, value: number): Uint8Array => {
    const bytes = both.slice();
    new DataView(bytes.buffer).setUint32(offset, value, true);
    return bytes;
  };
  return [
    encodeRequest({ ...base, notify: program }),
    encodeRequest({ ...base, kill: new Uint8Array(12) }),
    encodeRequest({ ...base, kill: new Uint8Array(32_776) }),
    ...[60, 68].flatMap((at) => [patched(at, 0), patched(at, both.byteLength), patched(at, 4)]),
    ...[64, 72].flatMap((at) => [patched(at, 7), patched(at, 0xffff_fff8), patched(at, 32_768)]),
  ].map((bytes) => [bytes, EINVAL]);
}

requireHost({ root: true, userns: true, programs: ["python3", "unshare"] }).describe(
  "a request",
  () => {
    let before: HostState;
    let sandbox: Sandbox;
    beforeAll(() => {
      expect(initFd).toBeGreaterThan(0);
      before = hostState();
      sandbox = Sandbox.open();
    });
    afterAll(() => {
      sandbox[Symbol.dispose]();
      expect(leftovers(before)).toEqual([]);
      removeTemporaryDirectories();
    });

    /** Sends bytes as they are: the refusal. Programs of other tests may still be ending. */
    function refusal(id: number, bytes: Uint8Array, fds: number[]): [number, number, number] {
      expect(send(sandbox.control, bytes, fds)).toBe(0);
      const report = sandbox.nextOf(id);
      expect(report.type).toBe(reportType.execFailed);
      return [report.id, report.step, report.err];
    }

    test("refuses malformed requests by id, and goes on", () => {
      const null0 = openSync("/dev/null", "r+");
      const two = [null0, null0];
      const id = sandbox.newId();
      const valid = encodeRequest({
        type: "exec",
        id,
        argv: ["/bin/true"],
        env: { A: "b" },
        nullStdin: true,
        path: "/",
      });
      const patched = (offset: number, value: number): Uint8Array => {
        const bytes = valid.slice();
        new DataView(bytes.buffer).setUint32(offset, value, true);
        return bytes;
      };
      const argv = new DataView(valid.buffer).getUint32(48, true);
      const outside = valid.byteLength;
      const broken: [Uint8Array, number, number[]?][] = [
        [patched(0, 60), EPROTO],
        [patched(4, 0), EINVAL],
        [patched(4, 250), EINVAL],
        [patched(4, 6), EBADF],
        [patched(12, 9), EINVAL],
        [patched(12, 0x101), EINVAL],
        [patched(20, 9), E2BIG],
        [patched(20, 1), EBADF],
        [valid, EBADF, [null0]],
        [valid, EBADF, [...two, null0]],
        [patched(24, 0o1000), EINVAL],
        [patched(32, 17), E2BIG],
        [patched(32, 3), EINVAL],
        [patched(36, 4), EINVAL],
        [patched(40, 0), EINVAL],
        [patched(40, outside), EINVAL],
        [patched(44, 0), EINVAL],
        [patched(44, 4096), E2BIG],
        [patched(44, 4095), EINVAL],
        [patched(48, argv + 1), EINVAL],
        [patched(48, outside), EINVAL],
        [patched(argv, outside), EINVAL],
        [patched(argv, 0), EINVAL],
        [patched(52, 0xffff_ffff), E2BIG],
        [patched(56, 0xffff_fff8), EINVAL],
        [patched(64, 8), EINVAL],
        [patched(72, 8), EINVAL],
        ...filterRequests(id),
        [valid.slice(0, 79), EINVAL],
      ];
      for (const [bytes, err, fds] of broken) {
        const expectedId = bytes.byteLength < 80 ? 0 : id;
        expect(refusal(expectedId, bytes, fds ?? two)).toEqual([expectedId, step.request, err]);
      }
      closeSync(null0);
      expect(sandbox.run(["/bin/true"]).report.code).toBe(0);
    });

    test("outlives requests that are broken in every way", () => {
      const valid = encodeRequest({
        type: "exec",
        id: 900_000,
        argv: ["/bin/true", "x"],
        env: { A: "b" },
        nullStdin: true,
        path: "/",
        rlimits: [{ resource: 7, soft: 9n, hard: 9n }],
        notify: allowAll,
        kill: allowAll,
      });
      const null0 = openSync("/dev/null", "r+");
      let seed = 42;
      const random = (below: number): number => {
        seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
        return (seed >>> 8) % below;
      };
      for (let round = 0; round < 2000; round++) {
        const bytes = valid.slice(0, random(4) === 0 ? 1 + random(valid.byteLength) : undefined);
        const view = new DataView(bytes.buffer, 0, bytes.byteLength);
        for (let change = random(3); change >= 0 && bytes.byteLength >= 4; change--) {
          const values = [0, 1, 2, 0xffff_ffff, 0x7fff_ffff, random(256), random(bytes.byteLength)];
          const spot = 4 * random(bytes.byteLength >> 2);
          view.setUint32(spot, values[random(values.length)] ?? 0, true);
        }
        const fds = [null0, null0].slice(0, random(3));
        while (send(sandbox.control, bytes, fds) !== 0) {
          expect(sandbox.next().type).not.toBe(reportType.setupFailed); // init waits for a reader
        }
      }
      // What init has to say to all this may fill its pipe: it is read up to the answer to one more.
      const last = sandbox.newId();
      const refused = encodeRequest({ type: "exec", id: last, argv: [], nullStdin: true });
      while (send(sandbox.control, refused, [null0, null0]) !== 0) sandbox.next();
      expect(sandbox.nextOf(last).type).toBe(reportType.execFailed);
      closeSync(null0);
      expect(sandbox.run(["/bin/true"]).report.code).toBe(0);
    });

    test("refuses strings that share their bytes", () => {
      const null0 = openSync("/dev/null", "r+");
      const id = sandbox.newId();
      const argv = Array.from({ length: 4000 }, () => "");
      const bytes = encodeRequest({
        type: "exec",
        id,
        argv: ["x".repeat(100_000), ...argv],
        nullStdin: true,
      });
      const view = new DataView(bytes.buffer, bytes.byteOffset);
      const offsets = view.getUint32(48, true);
      const first = view.getUint32(offsets, true);
      for (let index = 1; index <= 4000; index++) view.setUint32(offsets + index * 4, first, true);
      expect(refusal(id, bytes, [null0, null0])).toEqual([id, step.request, EINVAL]);
      closeSync(null0);
    });

    test("refuses an id that is in use", () => {
      const null0 = openSync("/dev/null", "r+");
      const id = sandbox.newId();
      const request = {
        type: "exec",
        id,
        argv: ["/bin/sleep", "1000"],
        nullStdin: true,
      } satisfies Request;
      sandbox.send(request, [null0, null0]);
      expect(sandbox.nextOf(id).type).toBe(reportType.started);
      expect(refusal(id, encodeRequest(request), [null0, null0])).toEqual([
        id,
        step.request,
        EEXIST,
      ]);
      sandbox.send({ type: "signal", id, signal: 9 });
      expect(sandbox.nextOf(id).signal).toBe(9);
      closeSync(null0);
    });

    test("takes the largest request, and cuts none", () => {
      const big = "x".repeat(120_000); // one string of execve(2) may have 128 KiB
      const { out } = sandbox.run(["/bin/sh", "-c", "expr length $1; expr length $A", "sh", big], {
        env: { A: "y".repeat(70_000) },
      });
      expect(out).toBe("120000\n70000\n");
      const many = Array.from({ length: 4000 }, (_, index) => `${index}`);
      expect(sandbox.run(["/bin/sh", "-c", "echo $#", "sh", ...many], { env: {} }).out).toBe(
        "4000\n",
      );
    });

    test("says so when a message is larger than any request may be", () => {
      // cprg_send() refuses to send one, so the kernel's own sendmsg has to.
      const request = encodeRequest({
        type: "exec",
        id: 77_777,
        argv: ["/bin/true", "x".repeat(200_000)],
      });
      const sent = Bun.spawnSync({
        cmd: [
          "python3",
          "-c",
          "import socket,sys; s=socket.socket(fileno=3); s.send(sys.stdin.buffer.read())",
        ],
        stdin: request,
        stdio: [request, "inherit", "inherit", sandbox.control],
      });
      expect(sent.exitCode).toBe(0);
      const report = sandbox.nextOf(77_777);
      expect([report.id, report.step, report.err]).toEqual([77_777, step.request, EMSGSIZE]);
    });
  },
);
