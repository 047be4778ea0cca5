/** Signals that may be sent to a program on a worker (proto/PROTOCOL.md section 9, "Programs"). */
export const EXEC_SIGNALS: readonly string[] = [
  "SIGHUP",
  "SIGINT",
  "SIGQUIT",
  "SIGUSR1",
  "SIGUSR2",
  "SIGTERM",
  "SIGKILL",
  "SIGSTOP",
  "SIGCONT",
  "SIGWINCH",
];
