/** Which distribution a host runs, and what its commands are: packages, and kernel parameters. */

import { readFileSync } from "node:fs";

/** Distributions whose commands differ; `other` is everything else. */
export type DistributionFamily =
  | "debian"
  | "ubuntu"
  | "fedora"
  | "rhel"
  | "arch"
  | "alpine"
  | "nixos"
  | "suse"
  | "other";

/** What os-release(5) says. */
export interface Distribution {
  readonly family: DistributionFamily;
  /** `Debian GNU/Linux 12 (bookworm)`, or `Linux`. */
  readonly name: string;
}

/** By ID, then by each word of ID_LIKE, nearest first (os-release(5)). */
const FAMILIES: Readonly<Record<string, DistributionFamily>> = {
  debian: "debian",
  raspbian: "debian",
  ubuntu: "ubuntu",
  linuxmint: "ubuntu",
  pop: "ubuntu",
  fedora: "fedora",
  rhel: "rhel",
  centos: "rhel",
  rocky: "rhel",
  almalinux: "rhel",
  ol: "rhel",
  amzn: "rhel",
  arch: "arch",
  archarm: "arch",
  manjaro: "arch",
  alpine: "alpine",
  nixos: "nixos",
  suse: "suse",
  opensuse: "suse",
  "opensuse-leap": "suse",
  "opensuse-tumbleweed": "suse",
  sles: "suse",
};

/** Reads the text of /etc/os-release; anything unknown is `other`. */
export function parseDistribution(osRelease: string): Distribution {
  const value = (name: string): string => {
    const line = new RegExp(`^${name}=(.*)$`, "m").exec(osRelease)?.[1] ?? "";
    return line.trim().replace(/^(["'])(.*)\1$/, "$2");
  };
  const words = [value("ID"), ...value("ID_LIKE").split(/\s+/)];
  const known = words.find((word) => Object.hasOwn(FAMILIES, word));
  return {
    family: known === undefined ? "other" : (FAMILIES[known] ?? "other"),
    name: value("PRETTY_NAME") || value("NAME") || "Linux",
  };
}

/** The distribution of this host. */
export function readDistribution(): Distribution {
  for (const path of ["/etc/os-release", "/usr/lib/os-release"]) {
    try {
      return parseDistribution(readFileSync(path, "utf8"));
    } catch {
      // The second is where the first usually leads (os-release(5)); a tiny image has neither.
    }
  }
  return parseDistribution("");
}

/** Interpreters that a distribution has a package of. */
export type PackagedInterpreter = "python" | "node" | "bash";

const PACKAGES: Readonly<Record<PackagedInterpreter, Partial<Record<DistributionFamily, string>>>> =
  {
    python: { arch: "python", nixos: "python3" },
    node: { fedora: "nodejs", nixos: "nodejs" },
    bash: {},
  };
const PACKAGE_DEFAULTS: Readonly<Record<PackagedInterpreter, string>> = {
  python: "python3",
  node: "nodejs",
  bash: "bash",
};

/** The command that installs an interpreter. */
export function installCommand(interpreter: PackagedInterpreter, { family }: Distribution): string {
  const name = PACKAGES[interpreter][family] ?? PACKAGE_DEFAULTS[interpreter];
  switch (family) {
    case "debian":
    case "ubuntu":
      return `apt-get install ${name}`;
    case "fedora":
    case "rhel":
      return `dnf install ${name}`;
    case "arch":
      return `pacman -S ${name}`;
    case "alpine":
      return `apk add ${name}`;
    case "suse":
      return `zypper install ${name}`;
    case "nixos":
      return `environment.systemPackages = [ pkgs.${name} ]; then nixos-rebuild switch, and name the program in /nix/store with CPRG_${interpreter.toUpperCase()} and its store with CPRG_BINDS=/nix/store`;
    case "other":
      return `install the package ${name}`;
  }
}

/** How a kernel parameter is set for good (kernel-parameters.txt), to take effect at the next boot. */
export function bootParameter(parameter: string, { family }: Distribution): string {
  switch (family) {
    case "debian":
    case "ubuntu":
      return `echo 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX ${parameter}"' > /etc/default/grub.d/90-cprg.cfg && update-grub, then reboot`;
    case "fedora":
    case "rhel":
      return `grubby --update-kernel=ALL --args="${parameter}", then reboot`;
    case "arch":
      return `add ${parameter} to GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub, grub-mkconfig -o /boot/grub/grub.cfg, then reboot`;
    case "suse":
      return `add ${parameter} to GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub, grub2-mkconfig -o /boot/grub2/grub.cfg, then reboot`;
    case "alpine":
      return `add ${parameter} to default_kernel_opts in /etc/update-extlinux.conf, update-extlinux, then reboot`;
    case "nixos":
      return `boot.kernelParams = [ "${parameter}" ]; then nixos-rebuild boot, and reboot`;
    case "other":
      return `boot with the kernel parameter ${parameter}`;
  }
}

/** How a sysctl is set now and for good (sysctl.d(5)). */
export function setSysctl(name: string, value: number, { family }: Distribution): string {
  if (family === "nixos") {
    return `boot.kernel.sysctl."${name}" = ${value}; then nixos-rebuild switch`;
  }
  const file = "/etc/sysctl.d/90-cprg.conf";
  return `echo '${name} = ${value}' >> ${file} && sysctl -p ${file}`;
}
