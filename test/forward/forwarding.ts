import { createSecretKey } from "node:crypto";
import { expect, vi } from "vitest";
import type { WorkerOptions } from "../../src/forward/endpoint-worker.ts";
import { type AskedEndpoint, Endpoints } from "../../src/forward/endpoints.ts";
import { Forwarder } from "../../src/forward/forwarder.ts";
import type { Answer } from "../../src/forward/http-sink.ts";
import { type Notices, noticesOf } from "../../src/forward/notices.ts";
import { EndpointSecrets } from "../../src/forward/secrets.ts";
import { CHANGES, type Told } from "../../src/forward/tell.ts";
import { SealedBytes } from "../../src/record/secrets/cipher.ts";
import type { DeliveryRow } from "../../src/store/forwarding.ts";
import type { Store } from "../../src/store/store.ts";
import { TestClock } from "./test-clock.ts";

export const OK: Answer = { status: 200, error: "", answer: "ok", retryAfter: undefined };
export const CALLER = { name: "test", owner: undefined };

/** A delivery as the receiver got it. */
export interface Sent {
	readonly id: string;
	readonly conversationId: string;
	readonly sequence: bigint | undefined;
	readonly at: number;
}

/** Forwards from a store to a receiver that a test scripts. */
export class Forwarding implements AsyncDisposable {
	readonly clock = new TestClock();
	readonly sent: Sent[] = [];
	readonly disabled: string[] = [];
	readonly errors: unknown[] = [];
	/** Answers a delivery. */
	answer: (sent: Sent) => Answer | Promise<Answer> = () => OK;
	readonly endpoints: Endpoints;
	readonly notices: Notices;
	readonly store: Store;
	#forwarder: Forwarder | undefined;
	readonly #options: WorkerOptions;

	constructor(store: Store, options: Partial<WorkerOptions> = {}) {
		this.store = store;
		const secrets = new EndpointSecrets(new SealedBytes([createSecretKey(Buffer.alloc(32, 7))]));
		const rows = new Map<string, DeliveryRow>();
		const sink = {
			refusalOf: () => undefined,
			denialOf: () => undefined,
			send: async (_: object, __: object, headers: Readonly<Record<string, string>>) => {
				const row = rows.get(headers["webhook-id"] ?? "");
				if (row === undefined) throw new Error("a delivery that was not told");
				const sent = { id: row.id, conversationId: row.conversationId, sequence: row.sequence, at: this.clock.now() };
				this.sent.push(sent);
				return await this.answer(sent);
			},
		};
		const { clock } = this;
		const shared = { store, secrets, sink, clock, linkOf: () => undefined };
		this.#options = {
			...shared,
			random: () => 0,
			tell: async (_, row): Promise<Told> => {
				rows.set(row.id, row);
				const { id, change, conversationId } = row;
				return { id, change, conversationId, timestamp: "", title: undefined, data: "{}" };
			},
			onDisabled: (_, reason) => this.disabled.push(reason),
			onError: (error) => this.errors.push(error),
			...options,
		};
		const onChange = () => this.#forwarder?.poke();
		this.notices = noticesOf({ store, clock, onChange });
		this.endpoints = new Endpoints({
			...shared,
			onChanged: onChange,
		});
	}

	start(): void {
		this.#forwarder = new Forwarder(this.#options);
	}

	async create(name = "hook", more: Partial<AskedEndpoint & { readonly owner: string }> = {}): Promise<void> {
		const asked = { url: "https://receiver.example/", changes: [...CHANGES.keys()], form: "", include: [], owner: "" };
		await this.endpoints.create({ ...asked, name, ...more }, CALLER);
	}

	async deliveries(name = "hook", owner = ""): Promise<readonly DeliveryRow[]> {
		return await this.endpoints.deliveries(
			{ name, owner },
			{ state: undefined, before: undefined, limit: 1000 },
			CALLER,
		);
	}

	/** Returns the figures of the endpoints. */
	async figures() {
		return await this.#forwarder?.figures();
	}

	/** Waits until so many deliveries were sent in all. */
	async count(number: number): Promise<void> {
		await vi.waitFor(() => expect(this.sent.length).toBe(number), { timeout: 60_000 });
	}

	/** Waits until the newest delivery of a conversation meets a test. */
	async until(conversationId: string, meets: (row: DeliveryRow) => boolean): Promise<DeliveryRow> {
		return await vi.waitFor(
			async () => {
				const row = (await this.deliveries()).find((one) => one.conversationId === conversationId && meets(one));
				if (row === undefined) throw new Error("not yet");
				return row;
			},
			{ timeout: 60_000 },
		);
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.#forwarder?.[Symbol.asyncDispose]();
		await this.store.close();
	}
}
