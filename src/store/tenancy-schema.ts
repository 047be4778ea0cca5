/**
 * Keys, and how many bytes are kept for each tenant. `logs.bytes` counts a log's lines and what is
 * kept beside it; triggers carry each change to the tenant's sum, so that a log that goes takes its
 * bytes along, whoever removes it.
 */
export const TENANCY = `
CREATE TABLE keys (
  id TEXT PRIMARY KEY,
  tenant TEXT NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('tenant', 'admin')),
  name TEXT NOT NULL,
  prefix TEXT NOT NULL,
  hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  ceilings TEXT,
  rate_per_min INTEGER,
  created_at INTEGER NOT NULL,
  last_used_at INTEGER,
  life_ms INTEGER,
  expires_at INTEGER,
  rotated_at INTEGER,
  revoked_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE tenant_bytes (
  tenant TEXT PRIMARY KEY,
  bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE logs ADD COLUMN tenant TEXT;
ALTER TABLE logs ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;

UPDATE logs SET
  tenant = (SELECT tenant FROM jobs WHERE logs.subject = 'job:' || jobs.id),
  bytes = coalesce((SELECT sum(octet_length(line)) FROM events WHERE log = logs.id), 0)
    + coalesce((SELECT octet_length(spec) FROM job_specs WHERE logs.subject = 'job:' || id), 0);
INSERT INTO tenant_bytes
  SELECT tenant, sum(bytes) FROM logs WHERE tenant IS NOT NULL GROUP BY tenant;

CREATE TRIGGER logs_counted_update AFTER UPDATE OF tenant, bytes ON logs BEGIN
  UPDATE tenant_bytes SET bytes = bytes - old.bytes WHERE tenant = old.tenant;
  INSERT INTO tenant_bytes SELECT new.tenant, new.bytes WHERE new.tenant IS NOT NULL
    ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER logs_counted_delete AFTER DELETE ON logs BEGIN
  UPDATE tenant_bytes SET bytes = bytes - old.bytes WHERE tenant = old.tenant;
END;
`;
