-- What the tasks work on.
CREATE TABLE IF NOT EXISTS orders (
  id       TEXT PRIMARY KEY,
  revision INTEGER NOT NULL DEFAULT 0 -- how many tasks have been at the order
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS sellers (
  id       TEXT PRIMARY KEY,
  reserved INTEGER NOT NULL DEFAULT 0 -- how many items are reserved from the seller
) WITHOUT ROWID;

-- One row for each task whose effect is there. It is written in the same transaction as the effect, so a task that runs
-- again finds it and does nothing.
CREATE TABLE IF NOT EXISTS ledger (
  task_id  TEXT PRIMARY KEY,
  type     TEXT NOT NULL,
  began_us INTEGER NOT NULL, -- when the handler began, and when it committed; microseconds since 1970
  ended_us INTEGER NOT NULL,
  changes  TEXT NOT NULL     -- JSON: what was added to the counter of which key
) WITHOUT ROWID;

-- The run that the file belongs to.
CREATE TABLE IF NOT EXISTS run (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  id  TEXT NOT NULL
);
