// Client of Sluicegate, a distributed rate limiter. `index.d.ts` documents it.

import { randomUUID } from "node:crypto";

const RETRIED = new Set([502, 503, 504]);
const RETRY_PAUSE_MS = 50;
const POLICIES = ["allow", "deny", "raise"];
const SETTLE = Symbol("settle");

export class SluicegateError extends Error {
  constructor(message, fields = {}) {
    super(message, fields.cause && { cause: fields.cause });
    this.name = new.target.name;
    Object.assign(this, fields);
  }
}

export class Unavailable extends SluicegateError {}

export class ServiceError extends SluicegateError {}

export class Denied extends SluicegateError {
  constructor(decision) {
    const { limit, retryAfterMs, source } = decision;
    const wait = retryAfterMs === undefined ? "waiting does not help" : `retry after ${retryAfterMs} ms`;
    const reason = source === "policy" ? "the service is unavailable" : wait;
    super(`denied${limit ? ` by \`${limit}\`` : ""}: ${reason}`, { decision, retryAfterMs });
  }
}

export class Client {
  #settings;

  constructor(url = "http://127.0.0.1:8080", settings = {}) {
    const { timeoutMs = 1000, retries = 1, onUnavailable = "allow", token, fetch = globalThis.fetch } = settings;
    if (!/^https?:\/\//.test(url)) throw new RangeError(`url ${url}: must begin with http:// or https://`);
    if (!(timeoutMs > 0)) throw new RangeError(`timeoutMs ${timeoutMs}: must be above 0`);
    if (!(retries >= 0)) throw new RangeError(`retries ${retries}: must be 0 or more`);
    if (!POLICIES.includes(onUnavailable)) {
      throw new RangeError(`onUnavailable ${onUnavailable}: must be ${POLICIES.join(", ")}`);
    }
    this.#settings = { url: url.replace(/\/+$/, ""), timeoutMs, retries, onUnavailable, token, fetch };
  }

  async check(domain, descriptors, options = {}) {
    const body = JSON.stringify(request(domain, descriptors, options));
    const proof = { key: options.idempotencyKey ?? randomUUID(), body };
    const decision = await this.#decide("/v1/check", body, { key: proof.key });
    // Not enumerable: the key and the body authorize a refund.
    if (decision.allowed && decision.source === "service") Object.defineProperty(decision, "proof", { value: proof });
    return decision;
  }

  async checkMany(checks, options = {}) {
    const all = checks.map((one) => request(one.domain, one.descriptors, { ...options, ...one }));
    const key = options.idempotencyKey ?? randomUUID();
    const policy = (error) => all.map(() => this.#policy(error));
    return this.#orPolicy(policy, async () => {
      const { answers } = await this.#send("/v1/check", { checks: all }, { key, expects: "answers" });
      return answers.map(decisionOf);
    });
  }

  async peek(domain, descriptors, options = {}) {
    return this.#decide("/v1/peek", request(domain, descriptors, options));
  }

  async refund(decision) {
    if (decision.source === "policy") return decision;
    if (!decision.proof) throw new RangeError("only an admitted check can be refunded; cancel a reservation instead");
    return this.#decide("/v1/refund", decision.proof.body, { key: decision.proof.key });
  }

  async wait(domain, descriptors, options = {}) {
    const { timeoutMs = 30_000, idempotencyKey: key = randomUUID() } = options;
    const body = { ...request(domain, descriptors, options), timeout_ms: timeoutMs };
    return this.#decide("/v1/wait", body, { key, waitMs: timeoutMs });
  }

  async reserve(domain, descriptors, options = {}) {
    const { ttlMs, waitMs, idempotencyKey: key = randomUUID() } = options;
    const body = { ...request(domain, descriptors, options), ttl_ms: ttlMs, timeout_ms: waitMs };
    const decision = await this.#decide("/v1/reserve", body, { key, waitMs });
    if (!decision.allowed) throw new Denied(decision);
    return new Reservation(this, decision.reservation, decision);
  }

  async withReservation(domain, descriptors, options, work) {
    const held = await this.reserve(domain, descriptors, options);
    try {
      return await work(held);
    } finally {
      await held.release();
    }
  }

  reservation(token) {
    return new Reservation(this, token);
  }

  /** Commits, cancels or renews; with `undefined` as its token, the policy admitted the reservation. */
  async [SETTLE](path, body, expects, { key = randomUUID(), isFinal = false } = {}) {
    if (body.reservation === undefined) return { source: "policy" };
    const policy = (error) => ({ source: "policy", error });
    return this.#orPolicy(policy, async () => {
      return { source: "service", ...(await this.#send(path, body, { key, isFinal, expects })) };
    });
  }

  async inspect(domain, descriptors) {
    const body = request(domain, descriptors, {});
    return (await this.#operate("/v1/keys/inspect", body, { expects: "keys" })).keys;
  }

  async explain(domain, descriptors, options = {}) {
    return this.#operate("/v1/explain", request(domain, descriptors, options));
  }

  async reset(domain, descriptors) {
    return decisionOf(await this.#operate("/v1/keys/reset", request(domain, descriptors, {})));
  }

  async credit(domain, descriptors, options) {
    const { idempotencyKey: key = randomUUID() } = options;
    return decisionOf(await this.#operate("/v1/keys/credit", request(domain, descriptors, options), { key }));
  }

  async #operate(path, body, options = {}) {
    return this.#send(path, body, { ...options, isOperator: true });
  }

  async #decide(path, body, options = {}) {
    const policy = (error) => this.#policy(error);
    return this.#orPolicy(policy, async () => decisionOf(await this.#send(path, body, options)));
  }

  #policy(error) {
    return { allowed: this.#settings.onUnavailable === "allow", source: "policy", statuses: [], error };
  }

  async #orPolicy(policy, exchange) {
    try {
      return await exchange();
    } catch (error) {
      if (!(error instanceof Unavailable) || this.#settings.onUnavailable === "raise") throw error;
      return policy(error);
    }
  }

  /** Sends a request, and sends it again under the same key if there is no response. */
  async #send(path, body, { key, waitMs, isOperator, isFinal, expects = "allowed" }) {
    const { url, timeoutMs, retries, token, fetch } = this.#settings;
    const headers = { "content-type": "application/json" };
    if (key) headers["idempotency-key"] = key;
    if (isOperator && token) headers.authorization = `Bearer ${token}`;
    const text = typeof body === "string" ? body : JSON.stringify(body);
    // All attempts of a call with which the service waits share one deadline.
    const pauseMs = (attempt) => RETRY_PAUSE_MS * 2 ** attempt;
    const isLast = (attempt) => attempt >= retries || deadline - performance.now() <= pauseMs(attempt);
    const deadline = waitMs === undefined ? Infinity : performance.now() + waitMs + timeoutMs;
    for (let attempt = 0; ; attempt++) {
      let failure;
      try {
        const left = deadline - performance.now();
        const signal = AbortSignal.timeout(left === Infinity ? timeoutMs : Math.ceil(left));
        const response = await fetch(url + path, { method: "POST", body: text, headers, signal });
        const { status } = response;
        const answer = parsed(await response.text());
        // The reservation was settled by the attempt without a response.
        if (isFinal && attempt > 0 && status === 410) return { returned: 0, statuses: [] };
        // The service has not noticed yet that the connection of that attempt is closed.
        const isInProgress = attempt > 0 && !isLast(attempt) && status === 409;
        if (!RETRIED.has(status) && !isInProgress) return resultOf(path, status, answer, expects);
        failure = errorOf(status, answer).message;
      } catch (error) {
        if (error instanceof SluicegateError) throw error;
        failure = error;
      }
      if (isLast(attempt)) {
        if (typeof failure === "string") throw new Unavailable(failure);
        throw new Unavailable(`no response: ${failure.cause?.message ?? failure.message}`, { cause: failure });
      }
      await new Promise((done) => setTimeout(done, pauseMs(attempt) * (0.5 + Math.random() / 2)));
    }
  }
}

export class Reservation {
  isSettled = false;
  isExpired = false;
  #client;

  constructor(client, token, decision) {
    this.#client = client;
    this.token = token;
    this.decision = decision;
  }

  async commit(hits, { partial, idempotencyKey: key } = {}) {
    const body = { reservation: this.token, hits, partial };
    const settled = await this.#client[SETTLE]("/v1/commit", body, "statuses", { key, isFinal: !partial });
    this.isSettled = !partial;
    return settled;
  }

  async cancel({ idempotencyKey: key } = {}) {
    const body = { reservation: this.token };
    const settled = await this.#client[SETTLE]("/v1/cancel", body, "statuses", { key, isFinal: true });
    this.isSettled = true;
    return settled;
  }

  async renew(ttlMs) {
    try {
      return await this.#client[SETTLE]("/v1/renew", { reservation: this.token, ttl_ms: ttlMs }, "expires_after_ms");
    } catch (error) {
      this.isExpired = error.context?.reason === "expired";
      throw error;
    }
  }

  async autoRenew(ttlMs, work) {
    if (!(ttlMs > 0)) throw new RangeError(`ttlMs ${ttlMs}: must be above 0`);
    let timer;
    const renew = async () => {
      try {
        const { expires_after_ms: leftMs = ttlMs } = await this.renew(ttlMs);
        schedule(Math.min(leftMs, ttlMs));
      } catch (error) {
        if (error instanceof Unavailable) schedule(ttlMs);
      }
    };
    const schedule = (leftMs) => {
      if (timer !== null && !this.isSettled) timer = setTimeout(renew, leftMs / 3);
    };
    schedule(Math.min(this.decision?.expires_after_ms ?? ttlMs, ttlMs));
    try {
      return await work();
    } finally {
      clearTimeout(timer);
      timer = null;
    }
  }

  /** Cancels unless settled; if that fails, the reservation expires. */
  async release() {
    if (this.isSettled) return;
    try {
      await this.cancel();
    } catch (error) {
      if (!(error instanceof SluicegateError)) throw error;
    }
  }

  [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    return this.release();
  }
}

function request(domain, descriptors, { hits, limits }) {
  return { domain, descriptors: Array.isArray(descriptors) ? descriptors : [descriptors], hits, limits };
}

function parsed(text) {
  try {
    const json = JSON.parse(text);
    if (json !== null && typeof json === "object") return json;
  } catch {}
  return { text };
}

function resultOf(path, status, answer, expects) {
  if (status === 200 || (status === 429 && "allowed" in answer)) {
    if (expects in answer) return answer;
    const message = `${path}: not a response of Sluicegate; is this its HTTP address?`;
    throw new ServiceError(message, { status, code: "invalid_response", context: {} });
  }
  const { code, message, context } = errorOf(status, answer);
  if (status >= 500) throw new Unavailable(message);
  throw new ServiceError(`${status} ${code}: ${message}`, { status, code, context });
}

/** Code, message and context, of the envelope or of an RFC 9457 problem. */
function errorOf(status, answer) {
  if (answer.error) return answer.error;
  if (answer.detail !== undefined) return { code: answer.code, message: answer.detail, context: answer };
  const message = `status ${status}, not from Sluicegate: ${JSON.stringify((answer.text ?? "").slice(0, 200))}`;
  return { code: "invalid_response", message, context: {} };
}

/** A decision, with the status that decided: of a denial, that with the longest wait; otherwise that
 * with the least remaining quota. */
function decisionOf({ error, ...answer }) {
  const { allowed, statuses = [] } = answer;
  const wait = (status) => status.retry_after_ms ?? Infinity;
  const [deciding = {}] = allowed
    ? statuses.filter((one) => one.remaining !== undefined).sort((a, b) => a.remaining - b.remaining)
    : statuses.filter((one) => !one.allowed).sort((a, b) => (wait(a) < wait(b) ? 1 : -1));
  const { limit, remaining, reset_after_ms: resetAfterMs, retry_after_ms: retryAfterMs } = deciding;
  const message = allowed ? undefined : error?.message;
  return { ...answer, source: "service", message, limit, remaining, resetAfterMs, retryAfterMs: allowed ? undefined : retryAfterMs };
}
