/**
 * Client of Sluicegate, a distributed rate limiter.
 *
 * ```js
 * import { Client } from "sluicegate";
 *
 * const client = new Client("http://127.0.0.1:8080");
 * const decision = await client.check("shop", { user: "42" });
 * if (!decision.allowed) console.log(`retry after ${decision.retryAfterMs} ms`);
 * ```
 *
 * Objects with names such as `reset_after_ms` have the form of the service: see `/openapi.json`.
 */

/** Entries as fields, in order, or as a list under `entries`; `hits` and `limit` of its own. */
export interface Descriptor {
  entries?: { key: string; value: string }[];
  hits?: number;
  limit?: { requests_per_unit: number; unit: string };
  [key: string]: unknown;
}

/** One descriptor or several, decided together. */
export type Descriptors = Descriptor | Descriptor[];

/** Origin of a result: the service, or the client's policy for an unavailable service. */
export type Source = "service" | "policy";

export interface Settings {
  /** For each attempt of a call; 1,000 by default. A call with which the service waits (`wait`,
   * `reserve` with `waitMs`) takes at most that time and `timeoutMs`, all attempts together. */
  timeoutMs?: number;
  /** Further attempts without a response, under the same idempotency key; 1 by default. */
  retries?: number;
  /** What happens after the last attempt; `"allow"` by default. */
  onUnavailable?: "allow" | "deny" | "raise";
  /** Operator token, for `inspect`, `explain`, `reset` and `credit`. */
  token?: string;
  fetch?: typeof fetch;
}

export interface Cost {
  /** Cost, 1 by default. */
  hits?: number;
  /** Lists all limits in each status. */
  limits?: boolean;
}

export interface Charge extends Cost {
  idempotencyKey?: string;
}

/** State of one limit. */
export interface LimitState {
  limit: string;
  /** Of `inspect`: whether it admits a cost of 1. Absent beside a decision, as is `retry_after_ms`. */
  allowed?: boolean;
  algorithm?: string;
  quota?: number;
  window_ms?: number;
  remaining?: number;
  reset_after_ms?: number;
  retry_after_ms?: number;
  enforced?: boolean;
}

/** State of the limits of one descriptor. */
export interface KeyState {
  rule?: string | null;
  /** Why there is no rule, as in `Status`. */
  reason?: string;
  limits: LimitState[];
}

/** Result of one descriptor. */
export interface Status {
  allowed: boolean;
  /** The rule that applied; `null` if no rule matched. */
  rule?: string | null;
  /** Why there is no rule: `no_domain`, `no_rule` (a mistyped key, for example) or `exempt`. */
  reason?: string;
  limit?: string;
  quota?: number;
  remaining?: number;
  reset_after_ms?: number;
  retry_after_ms?: number;
  /** Whether `retry_after_ms` is an estimate, as for a slot, which is free when its holder ends. */
  estimated?: boolean;
  max_cost?: number;
  wait_ms?: number;
  limits?: LimitState[];
  /** What each limit got back by a refund, credit, commit or cancellation; slots of a concurrency limit. */
  returned?: { limit: string; hits: number }[];
}

/** Whether a request is admitted. The limit is that which decided. */
export interface Decision {
  allowed: boolean;
  source: Source;
  statuses: Status[];
  /** Of a denial: a sentence for the user. */
  message?: string;
  limit?: string;
  remaining?: number;
  resetAfterMs?: number;
  /** Of a denial; absent if waiting does not help. */
  retryAfterMs?: number;
  /** Of `wait`: time that the service waited. */
  waited_ms?: number;
  /** Token of what the request holds, such as the slot of a concurrency limit. */
  reservation?: string;
  expires_after_ms?: number;
  /** The failure, if the policy decided. */
  error?: Unavailable;
}

/** Result of a commit or a cancellation. */
export interface Settlement {
  source: Source;
  /** Hits that every limit got back at least; `returned` of each status has those of each limit. */
  returned?: number;
  /** Hits that stay reserved after a partial commit. */
  held?: number;
  statuses?: Status[];
  error?: Unavailable;
}

export class SluicegateError extends Error {}
/** The service did not answer, or is overloaded or shutting down. */
export class Unavailable extends SluicegateError {}
/** The service rejected the request: an error to fix, not a denial. */
export class ServiceError extends SluicegateError {
  readonly status: number;
  /** Such as `invalid_request`, `unknown_reservation` or `settled_reservation`. */
  readonly code: string;
  readonly context: Record<string, unknown>;
}
/**
 * The reservation was denied. If `decision.source` is `service`, a limit denied it and charged
 * nothing. If it is `policy`, the service did not answer, and may have charged it all the same.
 */
export class Denied extends SluicegateError {
  readonly decision: Decision;
  readonly retryAfterMs?: number;
}

export class Client {
  constructor(url?: string, settings?: Settings);
  /** Charges the request if all its limits admit it. */
  check(domain: string, descriptors: Descriptors, options?: Charge): Promise<Decision>;
  /** Checks up to 1,000 requests, each decided separately, in one call. */
  checkMany(checks: ({ domain: string; descriptors: Descriptors } & Cost)[], options?: Charge): Promise<Decision[]>;
  /** Decides without charging. */
  peek(domain: string, descriptors: Descriptors, options?: Cost): Promise<Decision>;
  /** Returns the cost of an admitted check, once, within ten minutes, at the node that answered it. */
  refund(decision: Decision): Promise<Decision>;
  /** Charges as soon as its limits admit it; denied at once if that takes longer than `timeoutMs`. */
  wait(domain: string, descriptors: Descriptors, options?: Charge & { timeoutMs?: number }): Promise<Decision>;
  /** Reserves an estimated cost, waiting up to `waitMs`; throws `Denied`. */
  reserve(domain: string, descriptors: Descriptors, options?: Charge & Holding): Promise<Reservation>;
  /** Reserves, runs `work`, and then releases what was not committed, also if `work` throws. */
  withReservation<T>(
    domain: string,
    descriptors: Descriptors,
    options: Charge & Holding,
    work: (held: Reservation) => T | Promise<T>,
  ): Promise<T>;
  /** A reservation by its token. */
  reservation(token: string): Reservation;
  /** State of every limit of each descriptor (operators only). */
  inspect(domain: string, descriptors: Descriptors): Promise<KeyState[]>;
  /** The rules of a request, the decision, and its reason (operators only). */
  explain(
    domain: string,
    descriptors: Descriptors,
    options?: Cost,
  ): Promise<{ allowed: boolean; why: string; hint: string | null; [field: string]: unknown }>;
  /** Resets the limits of each descriptor (operators only). */
  reset(domain: string, descriptors: Descriptors): Promise<Decision>;
  /** Gives hits back without a charge: a top-up (operators only). A credit that is not given throws;
   * `allowed` is whether a check of one hit would pass now, and `false` while debt remains. */
  credit(domain: string, descriptors: Descriptors, options: { hits: number; idempotencyKey?: string }): Promise<Decision>;
}

export interface Holding {
  /** Time after which the service releases the reservation; 60,000 by default. */
  ttlMs?: number;
  /** Time to wait at the service until its limits admit it; absent: none. */
  waitMs?: number;
}

/** A reserved cost. `await using` releases at the end of the scope what was not committed. */
export class Reservation {
  /** Its name, for another process; absent if the policy admitted it. */
  readonly token?: string;
  readonly decision?: Decision;
  readonly isSettled: boolean;
  /** Whether a renewal found it expired: what it held is released, and a commit within a day is
   * charged in full. A reservation that was lost in a restart is not expired. */
  readonly isExpired: boolean;
  /** Charges the actual cost, and releases the rest or charges the excess. With `partial`, the rest
   * stays reserved, and the next commit counts what was used since this one. */
  commit(hits: number, options?: { partial?: boolean; idempotencyKey?: string }): Promise<Settlement>;
  /** Releases what was not committed. */
  cancel(options?: { idempotencyKey?: string }): Promise<Settlement>;
  /** Extends the reservation to `ttlMs` from now. */
  renew(ttlMs: number): Promise<{ source: Source; expires_after_ms?: number; error?: Unavailable }>;
  /** Renews it by a timer while `work` runs, three times in `ttlMs`. */
  autoRenew<T>(ttlMs: number, work: () => T | Promise<T>): Promise<T>;
  /** Cancels unless settled; if that fails, the reservation expires. */
  release(): Promise<void>;
}
