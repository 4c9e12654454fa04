import { BudgetPeriod } from "../../gen/conversations/v1/budget_service_pb.js";
import { scopes } from "../../src/access/keys.ts";
import { type AskedBudget, Budgets } from "../../src/budgets/budgets.ts";
import { followBudgets } from "../../src/budgets/follower.ts";
import { pausesOf } from "../../src/budgets/pauses.ts";
import { ReportUsage } from "../../src/conversations/read/report-usage.ts";
import { visibleStore } from "../../src/conversations/read/visible-store.ts";
import { CLOCK } from "../../src/forward/endpoint-worker.ts";
import type { AgentServerAddress } from "../../src/reconcile/agent-server.ts";
import type { Store } from "../../src/store/store.ts";
import { Forwarding } from "../forward/forwarding.ts";
import { record } from "../store/event-samples.ts";
import { append, type Columns, sample } from "../store/samples.ts";

export const ADMIN = { name: "admin", owner: undefined, scopes: new Set(scopes) };

/** A call of a model: its cost and its time, in milliseconds since the Unix epoch. */
export interface Call {
	readonly cost: number;
	readonly at: number;
	readonly model?: string;
	readonly tokens?: bigint;
}

/** Budgets of a store, with endpoints that nothing is sent to. Its time is that of a test clock; it waits in real time. */
export class TestBudgets implements AsyncDisposable {
	readonly forwarding: Forwarding;
	readonly budgets: Budgets;
	readonly errors: unknown[] = [];
	readonly logged: unknown[][] = [];
	/** Agent servers by senders. */
	readonly servers = new Map<string, AgentServerAddress>();
	readonly #stop = new AbortController();
	#following: Promise<void> | undefined;

	constructor(store: Store) {
		this.forwarding = new Forwarding(store);
		this.budgets = new Budgets({ store, now: () => this.now });
	}

	get store(): Store {
		return this.forwarding.store;
	}

	/** Milliseconds since the Unix epoch. */
	get now(): number {
		return this.forwarding.clock.now();
	}

	/** Goes to a time of ISO 8601. */
	goTo(time: string): void {
		this.forwarding.clock.advance(Date.parse(time) - this.now);
	}

	get reads() {
		return {
			of: ({ owner }: { readonly owner: string | undefined }) => ({
				usage: new ReportUsage(visibleStore(this.store, owner)),
			}),
		};
	}

	/** Returns the caller, subject and details of the entries of the audit about pauses, the newest first. */
	async audited(): Promise<readonly string[][]> {
		const entries = await this.store.tables.read.listAudit({ owner: undefined, before: undefined, limit: 100 });
		const pauses = entries.filter(({ action }) => action === "conversation.paused");
		return pauses.map(({ caller, owner, subject, details }) => [caller, owner, subject, details]);
	}

	/** Begins to compare. */
	follow(): void {
		const options = {
			...{
				store: this.store,
				reads: this.reads,
				notices: this.forwarding.notices,
				holder: `${Math.random()}`,
				look: 5,
			},
			pauses: pausesOf({
				...{ store: this.store, notices: this.forwarding.notices, servers: this.servers, stopping: this.#stop.signal },
				log: {
					emit: (event, fields = {}) => void this.logged.push([event, ...Object.values(fields)]),
				},
			}),
			clock: { now: () => this.now, wait: CLOCK.wait },
			onError: (error: unknown) => this.errors.push(error),
		};
		this.#following = followBudgets(options, this.#stop.signal);
	}

	async create(name: string, asked: AskedBudget): Promise<void> {
		await this.budgets.create({ name, owner: "" }, { period: BudgetPeriod.DAY, ...asked }, ADMIN);
	}

	/** Stores a record with calls. */
	async post(
		conversationId: string,
		calls: readonly Call[],
		columns: Partial<Columns> = {},
		sender = "agent",
	): Promise<void> {
		const update = sample({ conversationId, record: statsOf(conversationId, calls), columns });
		await append(this.store, { ...update, poster: { sender, owner: undefined } });
	}

	/** Waits until all budgets were compared with what is stored. */
	async compared(): Promise<void> {
		for (;;) {
			const [updates, events, budgets] = await Promise.all([
				this.store.updates.range(),
				this.store.events.range(),
				this.store.tables.read.listBudgets({ owner: undefined }),
			]);
			if (this.errors.length > 0) throw this.errors[0];
			if (budgets.every((one) => one.updates === updates.newest && one.events === events.newest)) return;
			await CLOCK.wait(5, new AbortController().signal);
		}
	}

	/** Returns what an endpoint was told, oldest first. */
	async told(name = "hook"): Promise<readonly { readonly text: string; readonly [member: string]: unknown }[]> {
		const deliveries = await this.forwarding.deliveries(name);
		return deliveries.toReversed().map(({ data = "{}" }) => JSON.parse(data));
	}

	async [Symbol.asyncDispose](): Promise<void> {
		this.#stop.abort();
		await this.#following;
		await this.forwarding[Symbol.asyncDispose]();
	}
}

/** Returns a record with the stats after some calls. */
function statsOf(id: string, calls: readonly Call[]): Uint8Array {
	const sum = calls.reduce((all, { cost }) => all + cost, 0);
	const tokens = calls.reduce((all, call) => all + (call.tokens ?? 0n), 0n);
	const costs = calls.map(({ cost, at, model = "m" }) => ({ model, cost, timestamp: at / 1000 }));
	const accumulatedTokenUsage = { model: "m", promptTokens: tokens };
	return record({
		id,
		stats: { usageToMetrics: { agent: { modelName: "m", accumulatedCost: sum, costs, accumulatedTokenUsage } } },
	});
}
