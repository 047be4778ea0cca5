// The table of what the server keeps (src/sandbox/server-capabilities.ts), proved: with it everything
// works, and without each one of it something named does not.

import { expect } from "bun:test";
import { join } from "node:path";
import { neededCapabilities, type ServerNeeds } from "../../src/sandbox/server-capabilities.ts";
import { requireHost } from "../helpers/host.ts";
import { call, type Ended, type Home, makeHome } from "./cprg.ts";
import { makeOwnGroups } from "./own-groups.ts";

const { test } = requireHost({ root: true, userns: true, cgroup: true, programs: ["setpriv"] });

const free: ServerNeeds = {
  userNamespaces: "free",
  hasClosedGroup: false,
  hasReadSearch: true,
  hasLowPort: false,
};
const python = "/usr/bin/python3";
const forbid = [python, join(import.meta.dir, "../fixtures/forbid-user-namespaces.py")];

/** Files in, a private file out, a process that outlives the program, a bind in its directory. */
const code = `import os, subprocess
assert open("in").read() and os.listdir("share")
os.makedirs("out", 0o700)
open("out/secret", "w").write("made")
os.chmod("out/secret", 0)
subprocess.Popen(["setsid", "sleep", "100"])`;

/** Runs that program as root with nothing but these capabilities. */
async function run(
  home: Home,
  names: readonly string[],
  options: { readonly cgroup: string; readonly shell: readonly string[] },
): Promise<Ended> {
  const kept = names.map((name) => `,+${name.toLowerCase()}`).join("");
  const setpriv = ["setpriv", "--bounding-set", `-all${kept}`, "--no-new-privs"];
  return await call(
    [
      ...["run", "-c", code, "--file", "/etc/hostname=in", "--out", join(home.path, "out")],
      ...["--binds", "/usr/share:/workspace/share"],
      ...["--cgroup", options.cgroup],
    ],
    { env: home.env, shell: [...options.shell, ...setpriv] },
  );
}

const cases: readonly (readonly [string, ServerNeeds, Readonly<Record<string, RegExp>>])[] = [
  [
    "in groups of its own",
    free,
    { DAC_READ_SEARCH: /artifact.*EACCES/, SETGID: /id_map: EPERM/, SETUID: /id_map: EPERM/ },
  ],
  [
    "in the topmost groups of a hierarchy",
    { ...free, hasClosedGroup: true },
    { DAC_OVERRIDE: /cgroup.*EACCES/, SETGID: /id_map: EPERM/, SETUID: /id_map: EPERM/ },
  ],
  [
    "without user namespaces",
    { ...free, userNamespaces: "forbidden" },
    {
      CHOWN: /mount "\/workspace": EPERM/,
      DAC_OVERRIDE: /mount "\/usr\/share": EACCES/,
      KILL: /capabilities: EPERM/,
      SETGID: /become_root: EPERM|it has ended/,
      SETUID: /capabilities: EPERM/,
      SETPCAP: /capabilities: EPERM/,
      SYS_ADMIN: /clone: EPERM/,
    },
  ],
];

for (const [title, needs, failures] of cases) {
  const names = neededCapabilities(needs);
  const shell = needs.userNamespaces === "forbidden" ? forbid : [];

  test(`${title} a program runs with ${names.join(" ")}, and not without any one of them`, async () => {
    using home = makeHome();
    using groups = makeOwnGroups();
    const where = { shell, cgroup: needs.hasClosedGroup ? "/" : groups.path };
    expect(await run(home, names, where)).toMatchObject({ code: 0, err: "" });
    expect(await Bun.file(join(home.path, "out/secret")).text()).toBe("made");
    expect(Object.keys(failures).sort()).toEqual([...names].sort());
    for (const name of names) {
      const rest = names.filter((other) => other !== name);
      const { code: ended, err } = await run(home, rest, where);
      expect([name, ended === 0, err]).toEqual([
        name,
        false,
        expect.stringMatching(failures[name] ?? /^$/),
      ]);
    }
    expect(groups.left()).toEqual([]);
  });
}
