// The ground "rootless": the same tests as a user that owns nothing on this host and was given
// nothing. All that it makes is one directory in the runner's own scratch, which goes with it.

import { chmodSync, chownSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { closedAncestor } from "../src/sandbox/instance.ts";

/** Nobody: in no list of users, and another one for each runner on this host. */
const USER = 20_000_000 + (process.pid % 1_000_000);
/** Says, from inside, what the tests stand on; then becomes their command. */
const REPORT = `echo "ground rootless: $(uname -sr), uid $(id -u), $(
  sed -n 's/.* - \\(cgroup2\\{0,1\\}\\) .*/\\1/p' /proc/self/mountinfo | sort -u | paste -sd' ')"
exec "$@"`;
/** In a mount namespace of its own: what is in the tree, where the user can reach it. */
const BIND = `for from in "$1"/*; do
  to=$2/\${from##*/}
  if [ -d "$from" ]; then mkdir "$to"; else : > "$to"; fi
  mount --bind "$from" "$to" || exit
done
cd "$2" && shift 2 && exec "$@"`;

/** How a command is run there. */
export interface Ground {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

/**
 * The command as that user, who can reach the tree whatever directories above it are closed; as this
 * user where the runner is no root.
 */
export function rootlessGround(
  command: readonly string[],
  { root, scratch }: { readonly root: string; readonly scratch: string },
): Ground {
  const home = join(scratch, "rootless");
  mkdirSync(home, { recursive: true, mode: 0o700 });
  const { PATH = "", CPRG_TEST_MUST_RUN: must } = process.env;
  return {
    command:
      process.getuid?.() === 0 ? asUser(command, { root, scratch, home }) : reporting(command),
    env: {
      PATH,
      HOME: home,
      TMPDIR: home,
      LANG: "C.UTF-8",
      ...(must === undefined ? {} : { CPRG_TEST_MUST_RUN: must }),
    },
  };
}

function reporting(command: readonly string[]): string[] {
  return ["sh", "-c", REPORT, "sh", ...command];
}

function asUser(
  command: readonly string[],
  place: { readonly root: string; readonly scratch: string; readonly home: string },
): string[] {
  const { root, scratch, home } = place;
  chmodSync(scratch, 0o711);
  for (const directory of [scratch, home]) chownSync(directory, USER, USER);
  const ids = ["--reuid", `${USER}`, "--regid", `${USER}`, "--clear-groups"];
  const drop = ["setpriv", ...ids, "--bounding-set=-all", "--inh-caps=-all"];
  if (closedAncestor(root) === null) return [...drop, ...reporting(command)];
  const tree = join(scratch, "tree");
  mkdirSync(tree, { mode: 0o755 });
  const moved = command.map((word) =>
    word.startsWith(`${root}/`) ? join(tree, word.slice(root.length)) : word,
  );
  const bound = ["unshare", "--mount", "sh", "-c", BIND, "sh", root, tree];
  return [...bound, ...drop, ...reporting(moved)];
}
