import { randomBytes } from "node:crypto";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { entryOf } from "../access/audit.ts";
import type { Principal } from "../access/keys.ts";
import type { ConversationReads } from "../conversations/conversation-reads.ts";
import { conditionsOf, invalid } from "../conversations/read/filter.ts";
import { ServiceError } from "../errors.ts";
import { stringifyExactJson } from "../record/json/exact-json.ts";
import type { NewAuditEntry } from "../store/audit.ts";
import type { DeliveryRow, DeliveryState, EndpointRow, ListedEndpoint, NewDelivery, Try } from "../store/forwarding.ts";
import type { Store } from "../store/store.ts";
import { type Clock, deliveryOf, microseconds, sendTold, wants } from "./endpoint-worker.ts";
import { CHANGES, FORMS, TEST_CHANGE, type Told } from "./forms.ts";
import { type EndpointSecrets, newSecret } from "./secrets.ts";
import type { Sinks } from "./sinks.ts";
import { INCLUDES, tell } from "./tell.ts";

/** Form of the name of an endpoint. */
const NAME = /^[A-Za-z0-9._-]{1,64}$/;
/** Maximum number of endpoints of an owner, and of those without an owner. */
const MAX_ENDPOINTS = 64;
/** Maximum number of deliveries that a replay puts into the queue. */
const MAX_REPLAYED = 10_000;
const MAX_URL = 2048;
/** Updates that are read at once. */
const PAGE = 1000;

/** What a caller says about an endpoint. */
export interface AskedEndpoint {
	readonly url: string;
	readonly changes: readonly string[];
	readonly filter?: ConversationFilter | undefined;
	readonly form: string;
	readonly include: readonly string[];
}

/** Which endpoint a caller means. */
interface NamedEndpoint {
	readonly name: string;
	/** Empty for the owner of the caller. */
	readonly owner: string;
}

/** What is written down. */
type EndpointAction = `endpoint.${string}` | `delivery.${string}`;

/** A caller, and what its owner limits. */
type Caller = Pick<Principal, "name" | "owner">;

interface EndpointsOptions {
	readonly store: Pick<Store, "updates" | "tables">;
	readonly secrets: EndpointSecrets;
	readonly sink: Pick<Sinks, "send" | "refusalOf" | "denialOf">;
	readonly clock: Clock;
	readonly linkOf: (conversationId: string) => string | undefined;
	/** Called when a caller has changed an endpoint, by its name, or its deliveries. */
	readonly onChanged: (action: EndpointAction, caller: Caller, endpoint: string) => void;
}

/** What callers do with endpoints. A caller with an owner has those of its owner only. */
export class Endpoints {
	readonly #options: EndpointsOptions;

	constructor(options: EndpointsOptions) {
		this.#options = options;
	}

	/**
	 * Creates an endpoint, which follows from the newest update.
	 *
	 * @returns the endpoint, and its secret, which cannot be shown again
	 * @throws ServiceError `invalid_argument`, `already_exists`, `failed_precondition` or `permission_denied`
	 */
	async create(asked: AskedEndpoint & NamedEndpoint, caller: Caller) {
		const { store, secrets, clock } = this.#options;
		if (!NAME.test(asked.name)) throw invalid("name", "must be 1 to 64 letters, digits, dots, dashes or underscores");
		const owner = ownerOf(asked, caller);
		if (owner !== "" && !NAME.test(owner))
			throw invalid("owner", "must be 1 to 64 letters, digits, dots, dashes or underscores");
		const settings = settingsOf(
			{ ...asked, owner, form: asked.form === "" ? "plain" : asked.form },
			this.#options.sink,
		);
		if (!secrets.canSeal)
			throw new ServiceError(
				"failed_precondition",
				"Endpoints need ENCRYPTION_KEY, with which their secrets are stored",
			);
		const known = await store.tables.read.listEndpoints({ owner });
		if (known.some(({ name }) => name === asked.name)) throw taken(asked.name);
		if (known.length >= MAX_ENDPOINTS)
			throw new ServiceError(
				"failed_precondition",
				`There are ${MAX_ENDPOINTS} endpoints, which is the largest number`,
			);
		const [id, secret] = [randomBytes(9).toString("hex"), newSecret()];
		const endpoint: EndpointRow = {
			...{ id, name: asked.name, owner, ...settings, secrets: secrets.first(id, secret), state: "active", reason: "" },
			...{ position: (await store.updates.range()).newest, generation: 1n, failures: 0, failingSince: undefined },
			...{ lastSuccessAt: undefined, lost: 0n, createdAt: microseconds(clock.now()), createdBy: caller.name },
		};
		const audit = entryOf("endpoint.created", caller, asked.name);
		if (!(await store.tables.write.createEndpoint({ of: endpoint, audit }))) throw taken(asked.name);
		this.#options.onChanged("endpoint.created", caller, asked.name);
		return { endpoint: { ...endpoint, waiting: 0 }, secret };
	}

	/** Returns the endpoints that a caller may see. */
	async list(caller: Caller): Promise<readonly ListedEndpoint[]> {
		return await this.#options.store.tables.read.listEndpoints({ owner: caller.owner });
	}

	/** @throws ServiceError `not_found` */
	async get(named: NamedEndpoint, caller: Caller): Promise<ListedEndpoint> {
		const owner = ownerOf(named, caller);
		const known = await this.#options.store.tables.read.listEndpoints({ owner });
		const found = known.find(({ name }) => name === named.name);
		if (found === undefined) throw new ServiceError("not_found", "There is no such endpoint");
		return found;
	}

	/**
	 * Changes settings.
	 *
	 * @param fields names of the settings that are changed
	 * @throws ServiceError `not_found`, `invalid_argument`, `permission_denied`, or `failed_precondition` when the endpoint is the
	 *   service's own
	 */
	async update(asked: AskedEndpoint & NamedEndpoint, fields: readonly string[], caller: Caller) {
		const endpoint = await this.#getChangeable(asked, caller);
		const { url, changes, filter, form, include } = asked;
		const changed = Object.entries({ url, changes, filter, form, include }).filter(([name]) => fields.includes(name));
		if (changed.length < new Set(fields).size) throw invalid("update_mask", "has a field that cannot be changed");
		const present = { ...endpoint, filter: filterOf(endpoint) };
		const settings = settingsOf({ ...present, ...Object.fromEntries(changed) }, this.#options.sink);
		await this.#write("endpoint.changed", caller, endpoint, fields.join(), (write, audit) =>
			write.changeEndpoint({ of: { id: endpoint.id, ...settings }, audit }),
		);
		return await this.get(asked, caller);
	}

	/** @throws ServiceError `not_found`; `failed_precondition` when the endpoint is the service's own */
	async delete(named: NamedEndpoint, caller: Caller): Promise<void> {
		const endpoint = await this.#getChangeable(named, caller);
		await this.#write("endpoint.deleted", caller, endpoint, "", (write, audit) =>
			write.deleteEndpoint({ of: endpoint.id, audit }),
		);
	}

	async pause(named: NamedEndpoint, caller: Caller): Promise<ListedEndpoint> {
		const endpoint = await this.get(named, caller);
		if (endpoint.state === "active")
			await this.#write("endpoint.paused", caller, endpoint, "", (write, audit) =>
				write.changeEndpoint({ of: { id: endpoint.id, state: "paused" }, audit }),
			);
		return await this.get(named, caller);
	}

	/** @param from whether it goes on from its position, or what waits is skipped */
	async resume(named: NamedEndpoint, from: "position" | "now", caller: Caller): Promise<ListedEndpoint> {
		const { store, clock } = this.#options;
		const endpoint = await this.get(named, caller);
		const position = from === "now" ? (await store.updates.range()).newest : undefined;
		await this.#write("endpoint.resumed", caller, endpoint, from, (write, audit) =>
			write.resumeEndpoint({ of: { id: endpoint.id, position, at: microseconds(clock.now()) }, audit }),
		);
		return await this.get(named, caller);
	}

	/** Gives an endpoint a new secret, and returns it. */
	async rotate(named: NamedEndpoint, caller: Caller): Promise<string> {
		const { secrets, clock } = this.#options;
		const { id, secrets: stored, ...endpoint } = await this.#getChangeable(named, caller);
		const secret = newSecret();
		await this.#write("endpoint.secret_rotated", caller, endpoint, "", (write, audit) =>
			write.changeEndpoint({ of: { id, secrets: secrets.rotated(id, stored, secret, clock.now()) }, audit }),
		);
		return secret;
	}

	/** Sends a delivery of the type `endpoint.test` at once, and notes it in the log. */
	async test(named: NamedEndpoint, caller: Caller): Promise<Try> {
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
	async replay(named: NamedEndpoint, { from, to }: { readonly from: bigint; readonly to: bigint }, caller: Caller) {
		const { store, clock } = this.#options;
		const endpoint = await this.get(named, caller);
		if (from < 1n) throw invalid("from", "must be 1 or more");
		if (to < from) throw invalid("to", "must not be before from");
		const last = to < endpoint.position ? to : endpoint.position;
		const conditions = conditionsOf(filterOf(endpoint));
		const deliveries: NewDelivery[] = [];
		for (let after = from - 1n; after < last; ) {
			const query = {
				after,
				limit: PAGE,
				withRecords: false,
				...(endpoint.owner === "" ? {} : { owner: endpoint.owner }),
			};
			const page = await store.updates.list(query);
			for (const update of page)
				if (update.sequence <= last && wants(endpoint.changes, conditions, update))
					deliveries.push(deliveryOf(endpoint.id, update));
			if (deliveries.length > MAX_REPLAYED)
				throw invalid("to", `must be nearer to from: the range has more than ${MAX_REPLAYED} deliveries`);
			after = page.length < PAGE ? last : (page.at(-1)?.sequence ?? last);
		}
		const queued = { id: endpoint.id, deliveries, at: microseconds(clock.now()) };
		return await this.#write("endpoint.replayed", caller, endpoint, `${from}-${to}`, (write, audit) =>
			write.enqueueDeliveries({ of: queued, audit }),
		);
	}

	/** Returns deliveries, the newest first. */
	async deliveries(
		named: NamedEndpoint,
		page: { readonly state: DeliveryState | undefined; readonly before: bigint | undefined; readonly limit: number },
		caller: Caller,
	): Promise<readonly DeliveryRow[]> {
		const { id } = await this.get(named, caller);
		return await this.#options.store.tables.read.listDeliveries({ id, ...page });
	}

	/** @throws ServiceError `not_found` */
	async retry(named: NamedEndpoint, delivery: string, caller: Caller): Promise<DeliveryRow> {
		const endpoint = await this.get(named, caller);
		const of = { id: endpoint.id, delivery, at: microseconds(this.#options.clock.now()) };
		const row = await this.#write("delivery.retried", caller, endpoint, delivery, (write, audit) =>
			write.retryDelivery({ of, audit }),
		);
		if (row === undefined) throw new ServiceError("not_found", "There is no such delivery");
		return row;
	}

	/** @throws ServiceError `not_found`; `failed_precondition` when the service's configuration says what the endpoint is */
	async #getChangeable(named: NamedEndpoint, caller: Caller): Promise<ListedEndpoint> {
		const endpoint = await this.get(named, caller);
		if (!Object.hasOwn(FORMS, endpoint.form))
			throw new ServiceError("failed_precondition", "The configuration of the service says what this endpoint is");
		return endpoint;
	}

	/** Writes a change with its entry of the audit. Returns the result, which is false or undefined if nothing was done. */
	async #write<Result>(
		action: EndpointAction,
		caller: Caller,
		{ name }: Pick<EndpointRow, "name">,
		details: string,
		write: (tables: Store["tables"]["write"], audit: NewAuditEntry) => Promise<Result>,
	): Promise<Result> {
		const result = await write(this.#options.store.tables.write, entryOf(action, caller, name, details));
		if (result !== false && result !== undefined) this.#options.onChanged(action, caller, name);
		return result;
	}
}

/** Returns what {@link tell} reads, limited to the owner of an endpoint. */
export function tellWith(store: Pick<Store, "updates">, reads: Pick<ConversationReads, "of">) {
	return (endpoint: EndpointRow, delivery: DeliveryRow) =>
		tell({ store, reads: reads.of({ owner: endpoint.owner === "" ? undefined : endpoint.owner }) }, endpoint, delivery);
}

/** Returns the filter of an endpoint. */
export function filterOf({ filter }: Pick<EndpointRow, "filter">): ConversationFilter {
	return fromBinary(ConversationFilterSchema, filter);
}

/** Returns whose endpoint is meant. A caller with an owner means its own, whatever it says. */
function ownerOf({ owner }: NamedEndpoint, caller: Caller): string {
	if (caller.owner === undefined) return owner;
	if (owner !== "" && owner !== caller.owner) throw new ServiceError("not_found", "There is no such endpoint");
	return caller.owner;
}

/** @throws ServiceError `invalid_argument` that names the field, or `permission_denied` for an address of others */
function settingsOf(asked: AskedEndpoint & Pick<NamedEndpoint, "owner">, sink: Pick<Sinks, "refusalOf" | "denialOf">) {
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
	conditionsOf(filter);
	return {
		...{ url: parsed.href, form, changes: [...new Set(changes)], include: [...new Set(include)] },
		filter: toBinary(ConversationFilterSchema, create(ConversationFilterSchema, filter ?? {})),
	};
}

function taken(name: string): ServiceError {
	return new ServiceError("already_exists", `There is an endpoint with the name ${name}`);
}
