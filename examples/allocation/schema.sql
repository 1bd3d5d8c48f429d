-- What the tasks work on. fence is the largest fencing token that was seen for the row's lock.
CREATE TABLE orders (
  id       TEXT PRIMARY KEY,
  fence    INTEGER NOT NULL DEFAULT 0,
  revision INTEGER NOT NULL DEFAULT 0 -- how many tasks have changed the order
) WITHOUT ROWID;

CREATE TABLE stock (
  id     TEXT PRIMARY KEY, -- of the seller
  fence  INTEGER NOT NULL DEFAULT 0,
  pieces INTEGER NOT NULL
) WITHOUT ROWID;

-- A row for each effect, written in the same transaction: an item or a task that runs again finds it and does nothing.
CREATE TABLE ledger (
  task     TEXT,
  item     INTEGER, -- -1 for an audit
  order_id TEXT NOT NULL,
  PRIMARY KEY (task, item)
) WITHOUT ROWID;
