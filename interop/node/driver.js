// Takes locks with the npm package redlock for a test: node driver.js HOST:PORT...
//
// Each line of the standard input is a request and is answered by one line, in any order:
//   {"id": 1, "op": "lock", "name": "lock:a", "ttl": 1000}   ->  {"id": 1, "ok": true, "errors": []}
//   {"id": 2, "op": "unlock" or "extend", "lock": 1}         ->  {"id": 2, "ok": false, "errors": ["..."]}
// A lock has the id of the request that took it. "ok" is false when the package refuses; "errors" are those of connections since
// the request came. The process ends with its input.
"use strict";

const readline = require("node:readline");
const Redis = require("ioredis");
const Redlock = require("redlock");

const clients = process.argv.slice(2).map((address) => {
  const [host, port] = address.split(":");
  const client = new Redis({ host, port: Number(port), lazyConnect: true, enableOfflineQueue: false, commandTimeout: 5000 });
  client.on("error", () => {}); // those of commands come by clientError
  return client;
});
const redlock = new Redlock(clients, { retryCount: 0 });
const errors = [];
redlock.on("clientError", (err) => errors.push(String(err)));

const locks = new Map();

const operations = {
  async lock({ id, name, ttl }) {
    locks.set(id, { ttl, lock: await redlock.lock(name, ttl) });
  },
  async unlock({ lock }) {
    await locks.get(lock).lock.unlock();
  },
  async extend({ lock: id }) {
    const { lock, ttl } = locks.get(id);
    // The package would not even ask the servers for a lock that it believes to be over, so a holder whose clock is late is played.
    lock.expiration = Date.now() + ttl;
    await lock.extend(ttl);
  },
};

async function answer(line) {
  const request = JSON.parse(line);
  const before = errors.length;
  let ok = true;
  try {
    await operations[request.op](request);
  } catch (err) {
    if (!(err instanceof Redlock.LockError)) throw err;
    ok = false;
  }
  process.stdout.write(JSON.stringify({ id: request.id, ok, errors: errors.slice(before) }) + "\n");
}

async function main() {
  await Promise.all(clients.map((client) => client.connect().catch(() => {}))); // one that is down is reported by each request
  const lines = readline.createInterface({ input: process.stdin });
  lines.on("line", (line) => {
    answer(line).catch((err) => {
      console.error(err);
      process.exit(1);
    });
  });
  lines.on("close", () => process.exit(0));
}

main();
