import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { Client, Denied, ServiceError, Unavailable } from "./index.js";

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));

let service, url, client;

before(async () => {
  const program = process.env.SLUICEGATE_TEST_SERVICE ?? path("../../target/debug/sluicegate");
  const free = ["--http", "--grpc", "--admin"].flatMap((endpoint) => [endpoint, "127.0.0.1:0"]);
  const args = ["serve", "--json", "--rules", path("../python/tests/rules.yaml"), ...free];
  service = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(service.stdout, "data");
  url = `http://${JSON.parse(line).http}`;
  client = new Client(url, { onUnavailable: "raise" });
});

after(() => service.kill());

/** Performs requests, but loses the first responses; or answers by itself. */
function faults({ lost = 0, answer } = {}) {
  const state = { lost, answer, requests: [] };
  state.fetch = async (address, request) => {
    state.requests.push(request);
    const response = state.answer ? new Response(state.answer[1], { status: state.answer[0] }) : await fetch(address, request);
    if (state.lost-- > 0) throw new TypeError("the response is lost");
    return response;
  };
  return state;
}

async function unreachable() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return `http://127.0.0.1:${port}`;
}

test("a check is charged until it is denied", async () => {
  for (const remaining of [2, 1, 0]) {
    const decision = await client.check("test", { user: "a" });
    const { allowed, source, limit } = decision;
    assert.deepEqual({ allowed, source, limit }, { allowed: true, source: "service", limit: "calls" });
    assert.equal(decision.remaining, remaining);
  }
  const decision = await client.check("test", { user: "a" });
  assert.equal(decision.allowed, false);
  assert.ok(decision.retryAfterMs > 0);
  assert.equal(decision.message, "Request quota exceeded. Wait 8 hours and try again.");
});

test("a refund needs only the decision, and a peek charges nothing", async () => {
  const decision = await client.check("test", { user: "b" }, { hits: 3 });
  assert.equal((await client.refund(decision)).remaining, 3);
  assert.equal((await client.peek("test", { user: "b" }, { hits: 3 })).allowed, true);
  await assert.rejects(client.refund(await client.peek("test", { user: "b" })), /only an admitted check/);
});

test("a wait ends when the quota is back, or is denied at once", async () => {
  for (let turn = 0; turn < 2; turn += 1) {
    const decision = await client.wait("test", { fast: "c" });
    assert.equal(decision.allowed, true);
    // A time of the clock: on a busy machine it is not exactly 0.
    assert.ok(Number.isInteger(decision.waited_ms));
  }
  await client.check("test", { user: "c" }, { hits: 3 });
  assert.equal((await client.wait("test", { user: "c" }, { timeoutMs: 10 })).allowed, false);
});

test("a batch is decided one by one", async () => {
  const checks = [2, 2, 1].map((hits) => ({ domain: "test", descriptors: { user: "d" }, hits }));
  assert.deepEqual((await client.checkMany(checks)).map((one) => one.allowed), [true, false, true]);
});

test("a reservation is committed, cancelled by an exception, and released at the end", async () => {
  const estimate = { hits: 800, ttlMs: 30_000 };
  const remaining = async () => (await client.peek("test", { tokens: "e" })).remaining;
  await client.withReservation("test", { tokens: "e" }, estimate, async (held) => {
    assert.equal((await held.commit(250)).returned, 550);
  });
  assert.equal(await remaining(), 750);
  const failing = client.withReservation("test", { tokens: "e" }, { hits: 700 }, () => {
    throw new RangeError("work");
  });
  await assert.rejects(failing, { message: "work" });
  await client.withReservation("test", { tokens: "e" }, { hits: 700 }, () => {});
  assert.equal(await remaining(), 750);
  const denied = client.reserve("test", { tokens: "e" }, estimate);
  await assert.rejects(denied, (error) => error instanceof Denied && error.decision.limit === "minute" && error.retryAfterMs > 0);
});

test("every charging call survives a lost response", async () => {
  const transport = faults();
  const client = new Client(url, { onUnavailable: "raise", fetch: transport.fetch });
  const losing = () => ((transport.lost = 1), client);
  const checked = await losing().check("test", { tokens: "f" }, { hits: 100 });
  const [first, second] = transport.requests;
  assert.equal(first.headers["idempotency-key"], second.headers["idempotency-key"]);
  assert.equal((await losing().refund(checked)).remaining, 1000);
  assert.equal((await losing().wait("test", { tokens: "f" }, { hits: 100 })).remaining, 900);
  const held = await losing().reserve("test", { tokens: "f" }, { hits: 300 });
  losing();
  assert.equal((await held.commit(100)).returned, 200);
  assert.equal((await client.peek("test", { tokens: "f" })).remaining, 800);
});

test("the policy is visible in the decision", async () => {
  const away = await unreachable();
  const decision = await new Client(away).check("test", { user: "x" });
  assert.deepEqual([decision.allowed, decision.source], [true, "policy"]);
  const held = await new Client(away).reserve("test", { user: "x" });
  assert.equal((await held.commit(1)).source, "policy");
  await assert.rejects(new Client(away, { onUnavailable: "deny" }).reserve("test", { user: "x" }), /denied: the service is unavailable/);
  await assert.rejects(new Client(away, { onUnavailable: "raise" }).check("test", { user: "x" }), Unavailable);
  await assert.rejects(new Client(away).inspect("test", { user: "x" }), Unavailable);
});

test("errors name the cause", async () => {
  await assert.rejects(client.check("test", { user: 42 }), (error) => error instanceof ServiceError && error.context.field === "descriptors[0].user");
  for (const body of ["", "hello", "[]", "{}"]) {
    const other = (status) => new Client(url, { fetch: faults({ answer: [status, body] }).fetch });
    await assert.rejects(other(200).check("test", { user: "x" }), /not a response of Sluicegate/);
    await assert.rejects(other(404).check("test", { user: "x" }), /status 404, not from Sluicegate/);
  }
  assert.throws(() => new Client("127.0.0.1:8080"), /must begin with http/);
  assert.throws(() => new Client(url, { onUnavailable: "open" }), /onUnavailable open: must be allow, deny, raise/);
});

test("usage, reset and explanation", async () => {
  await client.check("test", { tokens: "g" }, { hits: 10 });
  const [{ limits }] = await client.inspect("test", { tokens: "g" });
  assert.deepEqual(limits.map((one) => one.quota - one.remaining), [10, 10]);
  assert.equal((await client.reset("test", { tokens: "g" })).remaining, 1000);
  assert.match((await client.explain("test", { user: "g" }, { hits: 4 })).why, /test\/user/);
});

test("partial commits, renewals, top-ups and states of limits", async () => {
  const used = async () => (await client.inspect("test", { tokens: "h" }))[0].limits.map((one) => one.quota - one.remaining);
  const held = await client.reserve("test", { tokens: "h" }, { hits: 800, waitMs: 1000 });
  assert.equal((await held.commit(300, { partial: true })).held, 500);
  assert.equal((await held.renew(120_000)).expires_after_ms, 120_000);
  await held.release();
  assert.deepEqual(await used(), [300, 300]);
  await assert.rejects(held.commit(1), { code: "settled_reservation" });
  await client.credit("test", { tokens: "h" }, { hits: 200 });
  assert.deepEqual(await used(), [100, 100]);
  const { statuses } = await client.peek("test", { tokens: "h" }, { limits: true });
  assert.deepEqual(statuses[0].limits.map((one) => one.remaining), [900, 4900]);
});

test("a mistyped key is named", async () => {
  const { statuses } = await client.check("test", { usr: "i" });
  assert.deepEqual(statuses, [{ allowed: true, rule: null, reason: "no_rule" }]);
  assert.match((await client.explain("test", { usr: "i" })).hint, /did you mean `user`/);
  assert.deepEqual(await client.inspect("test", { usr: "i" }), [{ limits: [], rule: null, reason: "no_rule" }]);
});

test("all attempts of a waiting call share one deadline", async () => {
  let attempts = 0;
  const hung = (_, { signal }) => {
    attempts += 1;
    return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  };
  const client = new Client(url, { fetch: hung, timeoutMs: 10, retries: 3 });
  assert.equal((await client.reserve("test", { user: "j" }, { waitMs: 20 })).decision.source, "policy");
  assert.equal((await client.wait("test", { user: "j" }, { timeoutMs: 20 })).source, "policy");
  assert.equal(attempts, 2);
});

test("a timer renews a reservation, and reports its expiry", async () => {
  let renewals = 0;
  const { promise: third, resolve } = deferred();
  const counting = (address, request) => {
    if (address.endsWith("/v1/renew") && ++renewals === 3) resolve();
    return fetch(address, request);
  };
  const client = new Client(url, { onUnavailable: "raise", fetch: counting });
  const held = await client.reserve("test", { tokens: "k" }, { hits: 800, ttlMs: 300 });
  const settled = await held.autoRenew(300, async () => {
    await third;
    return held.commit(250);
  });
  assert.deepEqual([settled.returned, held.isExpired], [550, false]);
  const gone = (reason) => {
    const error = { code: "settled_reservation", message: "m", context: { reason } };
    const { fetch } = faults({ answer: [410, JSON.stringify({ error })] });
    return new Client(url, { fetch }).reservation("t");
  };
  const expired = gone("expired");
  await expired.autoRenew(3, async () => {
    while (!expired.isExpired) await new Promise(setImmediate);
  });
  const lost = gone("unknown");
  await assert.rejects(lost.renew(3), { code: "settled_reservation" });
  assert.equal(lost.isExpired, false);
});

function deferred() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}
