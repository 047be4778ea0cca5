// Writes the tables of system call numbers: `make gen`.

import { writeFileSync } from "node:fs";
import { makeTable, TABLE_SOURCES } from "./syscall-tables.ts";

for (const source of TABLE_SOURCES) {
  writeFileSync(source.path, makeTable(source));
  console.log(`wrote ${source.path}`);
}
