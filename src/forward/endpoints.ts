import { randomBytes } from "node:crypto";
import { create, toBinary } from "@bufbuild/protobuf";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { type Caller, type Named, NamedRows } from "../access/named.ts";
import { conditionsOnUpdates } from "../conversations/read/filter.ts";
import { invalid, ServiceError } from "../errors.ts";
import { stringifyExactJson } from "../record/json/exact-json.ts";
import type {
	DeliveryRow,
	DeliveryState,
	EndpointChange,
	EndpointRow,
	ListedEndpoint,
	NewDelivery,
	Try,
} from "../store/forwarding.ts";
import type { Store } from "../store/store.ts";
import { type Clock, filterOf, microseconds, readWanted, sendTold } from "./endpoint-worker.ts";
import { type EndpointSecrets, newSecret } from "./secrets.ts";
import type { Sinks } from "./sinks.ts";
import { CHANGES, FORMS, INCLUDES, TEST_CHANGE, type Told } from "./tell.ts";

/** Maximum number of deliveries that a replay puts into the queue. */
const MAX_REPLAYED = 10_000;
const MAX_URL = 2048;

export interface AskedEndpoint {
	readonly url: string;
	readonly changes: readonly string[];
	readonly filter?: ConversationFilter | undefined;
	readonly form: string;
	readonly include: readonly string[];
}

interface EndpointsOptions {
	readonly store: Pick<Store, "updates" | "tables">;
	readonly secrets: EndpointSecrets;
	readonly sink: Pick<Sinks, "send" | "refusalOf" | "denialOf">;
	readonly clock: Clock;
	readonly linkOf: (conversationId: string) => string | undefined;
	/** Called when a caller has changed an endpoint, by its name, or its deliveries. */
	readonly onChanged: (action: string, caller: Caller, endpoint: string) => void;
}

/** What callers do with endpoints. A caller with an owner has those of its owner only. */
export class Endpoints extends NamedRows<ListedEndpoint> {
	readonly #options: EndpointsOptions;
	readonly #write: Store["tables"]["write"];

	constructor(options: EndpointsOptions) {
		const { read, write } = options.store.tables;
		super({ kind: "endpoint", list: (query) => read.listEndpoints(query), onChanged: options.onChanged });
		this.#options = options;
		this.#write = write;
	}

	/**
	 * Creates an endpoint, which follows from the newest update.
	 *
	 * @returns the endpoint, and its secret, which cannot be shown again
	 * @throws ServiceError `invalid_argument`, `already_exists`, `failed_precondition` or `permission_denied`
	 */
	async create(asked: AskedEndpoint & Named, caller: Caller) {
		const { store, secrets, clock } = this.#options;
		const owner = await this.ownerOfNew(asked, caller);
		const settings = settingsOf({ ...asked, owner, form: asked.form || "plain" }, this.#options.sink);
		if (!secrets.canSeal) {
			const message = "Endpoints need ENCRYPTION_KEY, with which their secrets are stored";
			throw new ServiceError("failed_precondition", message);
		}
		const [id, secret] = [randomBytes(9).toString("hex"), newSecret()];
		const sealed = secrets.withNew(id, undefined, secret, clock.now());
		const endpoint: EndpointRow = {
			...{ id, name: asked.name, owner, ...settings, secrets: sealed, state: "active", reason: "" },
			...{ position: (await store.updates.range()).newest, failures: 0, failingSince: undefined },
			...{ lastSuccessAt: undefined, lost: 0n, createdAt: microseconds(clock.now()), createdBy: caller.name },
		};
		const isNew = await this.change("endpoint.created", caller, asked.name, "", (audit) =>
			this.#write.createEndpoint({ of: endpoint, audit }),
		);
		if (!isNew) throw this.taken(asked.name);
		return { endpoint: { ...endpoint, waiting: 0 }, secret };
	}

	/**
	 * Changes settings.
	 *
	 * @param fields names of the settings that are changed
	 * @throws ServiceError `not_found`, `invalid_argument`, `permission_denied`, or `failed_precondition` when the endpoint is the
	 *   service's own
	 */
	async update(asked: AskedEndpoint & Named, fields: readonly string[], caller: Caller) {
		const endpoint = await this.#getChangeable(asked, caller);
		const { url, changes, filter, form, include } = asked;
		const changed = Object.entries({ url, changes, filter, form, include }).filter(([name]) => fields.includes(name));
		if (changed.length < new Set(fields).size) throw invalid("update_mask", "has a field that cannot be changed");
		const present = { ...endpoint, filter: filterOf(endpoint) };
		const settings = settingsOf({ ...present, ...Object.fromEntries(changed) }, this.#options.sink);
		await this.#set("endpoint.changed", caller, endpoint, settings, fields.join());
		return await this.get(asked, caller);
	}

	/** @throws ServiceError `not_found`; `failed_precondition` when the endpoint is the service's own */
	async delete(named: Named, caller: Caller): Promise<void> {
		const endpoint = await this.#getChangeable(named, caller);
		await this.change("endpoint.deleted", caller, endpoint.name, "", (audit) =>
			this.#write.deleteEndpoint({ of: endpoint.id, audit }),
		);
	}

	async pause(named: Named, caller: Caller): Promise<ListedEndpoint> {
		const endpoint = await this.get(named, caller);
		if (endpoint.state === "active") await this.#set("endpoint.paused", caller, endpoint, { state: "paused" });
		return await this.get(named, caller);
	}

	/** @param from whether it goes on from its position, or what waits is skipped */
	async resume(named: Named, from: "position" | "now", caller: Caller): Promise<ListedEndpoint> {
		const { store, clock } = this.#options;
		const endpoint = await this.get(named, caller);
		const position = from === "now" ? (await store.updates.range()).newest : undefined;
		await this.change("endpoint.resumed", caller, endpoint.name, from, (audit) =>
			this.#write.resumeEndpoint({ of: { id: endpoint.id, position, at: microseconds(clock.now()) }, audit }),
		);
		return await this.get(named, caller);
	}

	async rotate(named: Named, caller: Caller): Promise<string> {
		const { secrets, clock } = this.#options;
		const endpoint = await this.#getChangeable(named, caller);
		const secret = newSecret();
		const rotated = secrets.withNew(endpoint.id, endpoint.secrets, secret, clock.now());
		await this.#set("endpoint.secret_rotated", caller, endpoint, { secrets: rotated });
		return secret;
	}

	/** Sends a delivery of the type `endpoint.test` at once, and notes it in the log. */
	async test(named: Named, caller: Caller): Promise<Try> {
		const { store, clock } = this.#options;
		const endpoint = await this.#getChangeable(named, caller);
		const at = clock.now();
		const id = `${endpoint.id}_test_${at}_${randomBytes(4).toString("hex")}`;
		const data = stringifyExactJson({ endpoint: endpoint.name });
		const timestamp = new Date(at).toISOString();
		const told: Told = { id, change: TEST_CHANGE, timestamp, conversationId: "", title: undefined, data };
		const { status, error, answer } = await sendTold(this.#options, endpoint, told, new AbortController().signal);
		const one: Try = { at, duration: clock.now() - at, status, error, answer };
		const state = error === "" ? ("delivered" as const) : ("failed" as const);
		const delivery = {
			...{ id, change: TEST_CHANGE, conversationId: "", sequence: undefined, data, state },
			...{ attempts: error === "" ? 0 : 1, tries: [one], nextAt: undefined, finishedAt: microseconds(clock.now()) },
		};
		await store.tables.write.addFinished({ id: endpoint.id, delivery });
		return one;
	}

	/**
	 * Puts updates of the past into the queue again.
	 *
	 * @returns their number
	 * @throws ServiceError `not_found` or `invalid_argument`
	 */
	async replay(named: Named, { from, to }: { readonly from: bigint; readonly to: bigint }, caller: Caller) {
		const { store, clock } = this.#options;
		const endpoint = await this.get(named, caller);
		if (from < 1n) throw invalid("from", "must be 1 or more");
		if (to < from) throw invalid("to", "must not be before from");
		const last = to < endpoint.position ? to : endpoint.position;
		const deliveries: NewDelivery[] = [];
		for (let after = from - 1n; after < last; ) {
			const { position, wanted } = await readWanted(store, endpoint, after, last);
			deliveries.push(...wanted.filter(({ sequence = 0n }) => sequence <= last));
			if (deliveries.length > MAX_REPLAYED)
				throw invalid("to", `must be nearer to from: the range has more than ${MAX_REPLAYED} deliveries`);
			after = position;
		}
		const queued = { id: endpoint.id, deliveries, at: microseconds(clock.now()) };
		return await this.change("endpoint.replayed", caller, endpoint.name, `${from}-${to}`, (audit) =>
			this.#write.enqueueDeliveries({ of: queued, audit }),
		);
	}

	/** Returns deliveries, the newest first. */
	async deliveries(
		named: Named,
		page: { readonly state: DeliveryState | undefined; readonly before: bigint | undefined; readonly limit: number },
		caller: Caller,
	): Promise<readonly DeliveryRow[]> {
		const { id } = await this.get(named, caller);
		return await this.#options.store.tables.read.listDeliveries({ id, ...page });
	}

	/** @throws ServiceError `not_found` */
	async retry(named: Named, delivery: string, caller: Caller): Promise<DeliveryRow> {
		const endpoint = await this.get(named, caller);
		const of = { id: endpoint.id, delivery, at: microseconds(this.#options.clock.now()) };
		const row = await this.change("delivery.retried", caller, endpoint.name, delivery, (audit) =>
			this.#write.retryDelivery({ of, audit }),
		);
		if (row === undefined) throw new ServiceError("not_found", "There is no such delivery");
		return row;
	}

	async #set(action: `endpoint.${string}`, caller: Caller, endpoint: ListedEndpoint, to: EndpointChange, details = "") {
		await this.change(action, caller, endpoint.name, details, (audit) =>
			this.#write.changeEndpoint({ of: { id: endpoint.id, ...to }, audit }),
		);
	}

	/** @throws ServiceError `not_found`; `failed_precondition` when the service's configuration says what the endpoint is */
	async #getChangeable(named: Named, caller: Caller): Promise<ListedEndpoint> {
		const endpoint = await this.get(named, caller);
		if (!Object.hasOwn(FORMS, endpoint.form))
			throw new ServiceError("failed_precondition", "The configuration of the service says what this endpoint is");
		return endpoint;
	}
}

/** @throws ServiceError `invalid_argument` that names the field, or `permission_denied` for an address of others */
function settingsOf(asked: AskedEndpoint & Pick<Named, "owner">, sink: Pick<Sinks, "refusalOf" | "denialOf">) {
	const { url, owner, changes, filter, form, include } = asked;
	const parsed = url.length > MAX_URL || !URL.canParse(url) ? undefined : new URL(url);
	if (parsed === undefined) throw invalid("url", `must be a URL of at most ${MAX_URL} characters`);
	const refusal = sink.refusalOf(url);
	if (refusal !== undefined) throw invalid("url", refusal);
	const denial = sink.denialOf({ url, owner });
	if (denial !== undefined) throw new ServiceError("permission_denied", `url is not allowed: ${denial}`);
	if (changes.length === 0) throw invalid("changes", "must have at least one entry");
	if (changes.some((change) => !CHANGES.has(change)))
		throw invalid("changes", `must be of ${[...CHANGES.keys()].join()}`);
	if (!Object.hasOwn(FORMS, form)) throw invalid("form", `must be one of ${Object.keys(FORMS).join(", ")}`);
	const isInclude = (name: string) => INCLUDES.some((known) => known === name);
	if (!include.every(isInclude)) throw invalid("include", `must be of ${INCLUDES.join(", ")}`);
	conditionsOnUpdates(filter);
	return {
		...{ url: parsed.href, form, changes: [...new Set(changes)], include: [...new Set(include)] },
		filter: toBinary(ConversationFilterSchema, create(ConversationFilterSchema, filter ?? {})),
	};
}
