/** Attacks on what a program inherits: the server's variables, signals and settings. */

import { sandboxVariables } from "../sandbox/variables.ts";
import { type Attack, broken, defineAttack, verdict } from "./attack.ts";
import { processStatus, readProcess } from "./host-process.ts";
import { javascript, shell } from "./javascript.ts";

const NO_SIGNAL = "0000000000000000";

/** The attacks. */
export const ENVIRONMENT_ATTACKS: readonly Attack[] = [
  defineAttack({
    id: "environment.variables",
    layer: "environment",
    needs: ["environment"],
    title: "find a variable of the server's",
    program: shell("echo READY; read line"),
    watch: ({ programs }) => readProcess(programs[0]?.pid ?? 0, "environ"),
    judge: ({ watched }) => {
      if (watched === null) return broken("the host could not look");
      const given = Object.entries(sandboxVariables()).map(([name, value]) => `${name}=${value}`);
      const present = watched.split("\0").filter((line) => line !== "");
      const others = present.filter((line) => !given.includes(line));
      const faults = [...others.map((line) => `has ${line.split("=")[0]}`)];
      return verdict(faults, `on the host: the ${present.length} that it was given`);
    },
  }),
  defineAttack({
    id: "environment.init",
    layer: "environment",
    needs: ["environment"],
    title: "find variables of the server in process 1",
    program: javascript("released();"),
    watch: ({ init }) => ({
      environment: readProcess(init.pid, "environ"),
      words: readProcess(init.pid, "cmdline"),
    }),
    judge: ({ watched: { environment, words } }) => {
      const own = (readProcess(process.pid, "environ") ?? "")
        .split("\0")
        .filter((line) => line !== "");
      const faults = [
        ...(environment === null || environment === "" ? [] : ["it has variables"]),
        ...own.filter((line) => words?.includes(line) === true).map(() => "it is told one"),
      ];
      return verdict(faults, "on the host: none");
    },
  }),
  defineAttack({
    id: "environment.signals",
    layer: "environment",
    needs: ["environment"],
    title: "inherit signals that are blocked or ignored",
    program: shell("echo READY; read line"),
    watch: ({ programs }) => processStatus(programs[0]?.pid ?? 0),
    judge: ({ watched }) => {
      const faults = ["SigBlk", "SigIgn", "SigPnd", "ShdPnd"]
        .filter((mask) => watched[mask] !== NO_SIGNAL)
        .map((mask) => `${mask} is ${watched[mask]}`);
      return verdict(faults, "on the host: none blocked, none ignored");
    },
  }),
];
