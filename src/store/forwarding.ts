import { audited, KEPT_FOR, MAX_KEPT, REMOVED } from "./audit.ts";
import { idDigest } from "./erasure.ts";
import { type GapOf, gapFrom } from "./gaps.ts";
import { type Columns, insertNew, type Session, type Value } from "./session.ts";
import { columnsOf, type RowOf, readRow } from "./typed-rows.ts";
import { bigint, integer, type Row, text } from "./values.ts";

/**
 * Endpoints and their deliveries. Times are microseconds since the Unix epoch. What a delivery tells is not stored, but
 * derived when it is sent, unless it has no update.
 */

const endpointStates = ["active", "paused", "disabled"] as const;
export const deliveryStates = ["waiting", "delivered", "failed", "skipped", "lost"] as const;
export type DeliveryState = (typeof deliveryStates)[number];

/**
 * An endpoint. `position` is the sequence of the update through which the log has been followed; `generation` grows with each
 * change and each process that begins to deliver, so that no former one writes any more; `lost` counts the updates that were
 * removed before they were sent.
 */
export interface EndpointRow
	extends Omit<RowOf<"endpoints">, "changes" | "include" | "state" | "failures" | "nextNumber"> {
	/** Names of changes, such as FINISHED. */
	readonly changes: readonly string[];
	readonly include: readonly string[];
	readonly state: (typeof endpointStates)[number];
	/** Number of failures since the last success, of the kinds that do not concern one delivery only. */
	readonly failures: number;
}

/** An endpoint in a list, with the number of its waiting deliveries. */
export interface ListedEndpoint extends EndpointRow {
	readonly waiting: number;
}

/**
 * Something to tell an endpoint. The id is unique for what is told, so that a repetition has the same. What has no update has
 * no sequence; then the JSON text `data` is told. `conversationId` is empty for what concerns no single conversation.
 */
export type NewDelivery = Pick<RowOf<"deliveries">, "id" | "change" | "conversationId" | "sequence" | "data">;

/** A try of a delivery. */
export interface Try {
	/** Milliseconds since the Unix epoch. */
	readonly at: number;
	/** Milliseconds. */
	readonly duration: number;
	/** 0 when there was no answer. */
	readonly status: number;
	/** Empty for a success. */
	readonly error: string;
	readonly answer: string;
}

/** A delivery. Those of a conversation are sent in the order of `number`. */
export interface DeliveryRow extends Omit<RowOf<"deliveries">, "endpointId" | "state" | "attempts" | "tries"> {
	readonly state: DeliveryState;
	/** Number of failed tries. */
	readonly attempts: number;
	/** The newest tries, oldest first. */
	readonly tries: readonly Try[];
}

/** The result of a try. */
export type DeliveryResult = Omit<DeliveryRow, "number" | "change" | "sequence" | "data" | "createdAt">;

/** Something to tell endpoints that has no update. */
export interface NewNotice {
	/** Unique for what is told. */
	readonly id: string;
	/** Empty for what concerns no single conversation. */
	readonly conversationId: string;
	/** What each endpoint is told. */
	readonly deliveries: readonly { readonly endpoint: string; readonly delivery: NewDelivery }[];
	readonly at: bigint;
}

/** What the last tries say about an endpoint. */
export interface EndpointHealth extends Pick<EndpointRow, "failures" | "failingSince" | "lastSuccessAt"> {
	/** Why it is to be disabled. */
	readonly disabledBecause: string | undefined;
}

/** A former owner of an endpoint writes nothing: `generation` must be the present one. */
export interface OfGeneration {
	readonly id: string;
	readonly generation: bigint;
}

/** What tries of deliveries of an endpoint say. */
export interface Tried extends OfGeneration {
	readonly results: readonly DeliveryResult[];
	readonly health: EndpointHealth;
}

/** Assignments that finish a delivery without sending it. */
const SKIP = "state = 'skipped', next_at = NULL, finished_at = ?";

/** Number of finished deliveries that are kept of an endpoint. */
const KEPT_DELIVERIES = 10_000;

/** The reads of endpoints and deliveries. */
export const forwardingReads = {
	/** Lists endpoints by owner and name. */
	async listEndpoints(session: Session, { owner }: { readonly owner: string | undefined }): Promise<ListedEndpoint[]> {
		const { schema } = session.dialect;
		const rows = await session.all(
			`SELECT e.*, (
				SELECT count(*) FROM ${schema}deliveries d WHERE d.endpoint_id = e.id AND d.state = 'waiting'
			) AS waiting FROM ${schema}endpoints e ${owner === undefined ? "" : "WHERE e.owner = ?"} ORDER BY e.owner, e.name`,
			...(owner === undefined ? [] : [owner]),
		);
		return rows.map((row) => ({ ...endpointFrom(row), waiting: integer(row.waiting) }));
	},
	/** Returns the waiting deliveries after a number, in order. */
	async listWaiting(
		session: Session,
		{ id, after, limit }: { readonly id: string; readonly after: bigint; readonly limit: number },
	): Promise<DeliveryRow[]> {
		const rows = await session.all(
			`SELECT * FROM ${session.dialect.schema}deliveries
			WHERE endpoint_id = ? AND state = 'waiting' AND number > ? ORDER BY number LIMIT ?`,
			...[id, after, limit],
		);
		return rows.map((row) => deliveryFrom(row));
	},
	/** Returns deliveries, the newest first. */
	async listDeliveries(session: Session, { id, state, before, limit }: DeliveryQuery): Promise<DeliveryRow[]> {
		const conditions = ["endpoint_id = ?"];
		const values: Value[] = [id];
		if (state !== undefined) {
			conditions.push("state = ?");
			values.push(state);
		}
		if (before !== undefined) {
			conditions.push("number < ?");
			values.push(before);
		}
		const rows = await session.all(
			`SELECT * FROM ${session.dialect.schema}deliveries
			WHERE ${conditions.join(" AND ")} ORDER BY number DESC LIMIT ?`,
			...values,
			limit,
		);
		return rows.map((row) => deliveryFrom(row));
	},
	/** Whether there is a notice with an id. */
	async hasNotice({ all, dialect }: Session, id: string): Promise<boolean> {
		return (await all(`SELECT id FROM ${dialect.schema}notices WHERE id = ?`, id)).length > 0;
	},
	/** Returns the open gaps that were noticed in some time, the oldest first. */
	async listOpenedGaps(
		session: Session,
		{ after, through, limit }: { readonly after: bigint; readonly through: bigint; readonly limit: number },
	): Promise<GapOf[]> {
		const rows = await session.all(
			`SELECT * FROM ${session.dialect.schema}gaps WHERE since > ? AND since <= ? ORDER BY since LIMIT ?`,
			...[after, through, limit],
		);
		return rows.map((row) => ({ ...gapFrom(row), conversationId: text(row.conversation_id) }));
	},
};

/** Which deliveries are listed. */
export interface DeliveryQuery {
	/** Id of the endpoint. */
	readonly id: string;
	readonly state: DeliveryState | undefined;
	/** Only those with a smaller number. */
	readonly before: bigint | undefined;
	readonly limit: number;
}

/** The changes of endpoints and deliveries. */
export const forwardingWrites = {
	/** Stores an endpoint at the newest update, unless its owner has one of this name. Returns whether it was stored. */
	createEndpoint: audited(async (session: Session, endpoint: EndpointRow): Promise<boolean> => {
		return await insertNew(session, "endpoints", endpointColumns(endpoint));
	}),
	/** Changes settings, the state or the position of an endpoint. Processes that deliver to it begin again. */
	changeEndpoint: audited(async (session: Session, { id, ...changes }: Pick<EndpointRow, "id"> & EndpointChange) => {
		const { schema } = session.dialect;
		const row = changedColumns(changes);
		const assignments = Object.keys(row).map((name) => `${name} = ?, `);
		const changed = await session.all(
			`UPDATE ${schema}endpoints SET ${assignments.join("")} generation = generation + 1 WHERE id = ? RETURNING id`,
			...Object.values(row).map((value) => value ?? null),
			id,
		);
		return changed.length > 0;
	}),
	/** Lets an endpoint go on: from its position, or from a position at which what waits is skipped. */
	resumeEndpoint: audited(
		async (
			session: Session,
			{ id, position, at }: { readonly id: string; readonly position: bigint | undefined; readonly at: bigint },
		): Promise<boolean> => {
			const { schema } = session.dialect;
			const resumed = await session.all(
				`UPDATE ${schema}endpoints SET state = 'active', reason = '', failures = 0, failing_since = NULL,
				position = coalesce(?, position), generation = generation + 1 WHERE id = ? RETURNING id`,
				...[position ?? null, id],
			);
			const change = position === undefined ? "attempts = 0, next_at = ?" : SKIP;
			await session.all(
				`UPDATE ${schema}deliveries SET ${change} WHERE endpoint_id = ? AND state = 'waiting'`,
				...[at, id],
			);
			return resumed.length > 0;
		},
	),
	deleteEndpoint: audited(async (session: Session, id: string): Promise<boolean> => {
		const { schema } = session.dialect;
		const deleted = await session.all(`DELETE FROM ${schema}endpoints WHERE id = ? RETURNING id`, id);
		await session.all(`DELETE FROM ${schema}deliveries WHERE endpoint_id = ?`, id);
		return deleted.length > 0;
	}),
	/**
	 * Lets a process begin to deliver to an endpoint; no other one writes to it any more.
	 *
	 * @returns undefined when it is not active
	 */
	async beginDelivering(session: Session, id: string): Promise<EndpointRow | undefined> {
		const [row] = await session.all(
			`UPDATE ${session.dialect.schema}endpoints SET generation = generation + 1
			WHERE id = ? AND state = 'active' RETURNING *`,
			id,
		);
		return row && endpointFrom(row);
	},
	/**
	 * Moves the position of an endpoint and puts deliveries into its queue.
	 *
	 * @returns whether it was done: false when the process does not deliver to it any more
	 */
	async advanceEndpoint(
		session: Session,
		{ id, generation, position, deliveries, at, nextAt }: OfGeneration & Queued & { readonly position: bigint },
	): Promise<boolean> {
		const moved = await session.all(
			`UPDATE ${session.dialect.schema}endpoints SET position = ? WHERE id = ? AND generation = ? RETURNING id`,
			...[position, id, generation],
		);
		if (moved.length === 0) return false;
		await enqueue(session, id, { deliveries, at, nextAt });
		return true;
	},
	/** Puts deliveries into the queue of an endpoint, if it exists, except those that are in it. Returns their number. */
	enqueueDeliveries: audited(
		async (session: Session, { id, deliveries, at }: Queued & { readonly id: string }): Promise<number> => {
			const rows = await session.all(
				`SELECT id FROM ${session.dialect.schema}deliveries WHERE endpoint_id = ? AND state = 'waiting'`,
				id,
			);
			const waiting = new Set(rows.map((row) => text(row.id)));
			const others = deliveries.filter((delivery) => !waiting.has(delivery.id));
			await enqueue(session, id, { deliveries: others, at });
			return others.length;
		},
	),
	/**
	 * Puts what has no update into the queues of endpoints, once for each id. Returns whether it was the first time. Removes
	 * some of the notices that are too old or too many.
	 */
	async addNotice(session: Session, { id, conversationId, deliveries, at }: NewNotice): Promise<boolean> {
		const notice = { id, conversation_id: conversationId, noticed_at: at };
		if (!(await insertNew(session, "notices", notice))) return false;
		// In one order, as for all who lock several endpoints.
		for (const { endpoint, delivery } of deliveries.toSorted((a, b) => (a.endpoint < b.endpoint ? -1 : 1)))
			await enqueue(session, endpoint, { deliveries: [delivery], at });
		const table = `${session.dialect.schema}notices`;
		await session.all(
			`DELETE FROM ${table} WHERE id IN (
				SELECT id FROM ${table} WHERE noticed_at < ? OR noticed_at < (
					SELECT noticed_at FROM ${table} ORDER BY noticed_at DESC LIMIT 1 OFFSET ${MAX_KEPT}
				) ORDER BY noticed_at LIMIT ${REMOVED}
			)`,
			at - KEPT_FOR,
		);
		return true;
	},
	/** Clears what deliveries have of a conversation that was erased. */
	async clearDeliveries(
		session: Session,
		{ conversationId, at }: { readonly conversationId: string; readonly at: bigint },
	): Promise<void> {
		await eraseDeliveries(session, conversationId, at);
	},
	/** Notes the results of tries. Returns whether it was done, as `advanceEndpoint`. */
	async recordTries(session: Session, { id, generation, results, health }: Tried): Promise<boolean> {
		const { schema } = session.dialect;
		const { failures, failingSince, lastSuccessAt, disabledBecause } = health;
		const lost = results.filter(({ state }) => state === "lost").length;
		const known = await session.all(
			`UPDATE ${schema}endpoints SET failures = ?, failing_since = ?, last_success_at = ?, lost = lost + ?
			WHERE id = ? AND generation = ? RETURNING id`,
			...[failures, failingSince ?? null, lastSuccessAt ?? null, lost, id, generation],
		);
		if (known.length === 0) return false;
		for (const result of results) await recordResult(session, id, result);
		// An erasure meanwhile has not seen what was put into the queue just after it.
		for (const { state, conversationId, finishedAt } of results)
			if (state === "lost" && conversationId !== "" && (await isErased(session, conversationId)))
				await eraseDeliveries(session, conversationId, finishedAt ?? 0n);
		if (disabledBecause !== undefined)
			await session.all(
				`UPDATE ${schema}endpoints SET state = 'disabled', reason = ?, generation = generation + 1 WHERE id = ?`,
				...[disabledBecause, id],
			);
		return true;
	},
	/** Notes a finished delivery that was sent outside of the queue. */
	async addFinished(
		session: Session,
		{ id, delivery }: { readonly id: string; readonly delivery: NewDelivery & DeliveryResult },
	): Promise<void> {
		const at = delivery.finishedAt ?? 0n;
		await enqueue(session, id, { deliveries: [delivery], at });
		await recordResult(session, id, delivery);
	},
	/** Lets a delivery be tried at once, at its place if it waits. Returns it; undefined if there is none. */
	retryDelivery: audited(
		async (
			session: Session,
			{ id, delivery, at }: { readonly id: string; readonly delivery: string; readonly at: bigint },
		): Promise<DeliveryRow | undefined> => {
			const { schema } = session.dialect;
			const [number] = await takeNumbers(session, id, 1);
			if (number === undefined) return undefined;
			const [row] = await session.all(
				`UPDATE ${schema}deliveries SET number = CASE WHEN state = 'waiting' THEN number ELSE ? END,
				state = 'waiting', attempts = 0, next_at = ?, finished_at = NULL
			WHERE endpoint_id = ? AND id = ? RETURNING *`,
				...[number, at, id, delivery],
			);
			// The process that delivers reads the queue again.
			await session.all(`UPDATE ${schema}endpoints SET generation = generation + 1 WHERE id = ?`, id);
			return row && deliveryFrom(row);
		},
	),
	/** Removes finished deliveries that are too old, and the oldest ones beyond {@link KEPT_DELIVERIES}. */
	async trimDeliveries(
		session: Session,
		{ id, finishedBefore }: { readonly id: string; readonly finishedBefore: bigint },
	): Promise<void> {
		const { schema } = session.dialect;
		await session.all(
			`DELETE FROM ${schema}deliveries WHERE endpoint_id = ? AND state <> 'waiting' AND (
				finished_at < ? OR number <= (
					SELECT number FROM ${schema}deliveries WHERE endpoint_id = ? AND state <> 'waiting'
					ORDER BY number DESC LIMIT 1 OFFSET ${KEPT_DELIVERIES}
				)
			)`,
			...[id, finishedBefore, id],
		);
	},
};

/** Writes that need not be on disk before the answer: after a crash they are done again, with the same ids. */
export const REPEATABLE_FORWARDING = [
	"advanceEndpoint",
	"recordTries",
	"trimDeliveries",
] as const satisfies (keyof typeof forwardingWrites)[];

/** Clears what deliveries have of a conversation that is erased, and sends none of them. */
export async function eraseDeliveries(session: Session, conversationId: string, at: bigint): Promise<void> {
	const { schema } = session.dialect;
	await session.all(`DELETE FROM ${schema}notices WHERE conversation_id = ?`, conversationId);
	const found = await session.all(`SELECT * FROM ${schema}deliveries WHERE conversation_id = ?`, conversationId);
	const rows = found.map((row) => ({ endpoint: text(row.endpoint_id), ...deliveryFrom(row) }));
	// Endpoints first, as for all who lock both.
	for (const endpoint of [...new Set(rows.map((row) => row.endpoint))].sort()) {
		const lost = rows.filter((row) => row.endpoint === endpoint && row.state === "waiting").length;
		await session.all(`UPDATE ${schema}endpoints SET lost = lost + ? WHERE id = ?`, lost, endpoint);
	}
	for (const { endpoint, id, state, tries } of rows) {
		const cleared = JSON.stringify(tries.map((one) => ({ ...one, answer: "" })));
		await session.all(
			`UPDATE ${schema}deliveries SET conversation_id = '', data = NULL, next_at = NULL, tries = ?, state = ?,
				finished_at = coalesce(finished_at, ?) WHERE endpoint_id = ? AND id = ?`,
			...[cleared, state === "waiting" ? "lost" : state, at, endpoint, id],
		);
	}
}

async function isErased({ all, dialect }: Session, conversationId: string): Promise<boolean> {
	const found = await all(
		`SELECT id_digest FROM ${dialect.schema}erasures WHERE id_digest = ?`,
		idDigest(conversationId),
	);
	return found.length > 0;
}

/** Deliveries to put into a queue. */
export interface Queued {
	readonly deliveries: readonly NewDelivery[];
	readonly at: bigint;
	/** When they are tried first. Default: at once. */
	readonly nextAt?: bigint | undefined;
}

/** What can be changed of an endpoint. */
export type EndpointChange = Partial<
	Omit<EndpointRow, "id" | "name" | "owner" | "generation" | "createdAt" | "createdBy">
>;

/** Returns the numbers of the next deliveries; none if the endpoint does not exist. */
async function takeNumbers(session: Session, id: string, count: number): Promise<bigint[]> {
	const [row] = await session.all(
		`UPDATE ${session.dialect.schema}endpoints SET next_number = next_number + ? WHERE id = ? RETURNING next_number`,
		...[count, id],
	);
	if (row === undefined) return [];
	const first = bigint(row.next_number) - BigInt(count);
	return Array.from({ length: count }, (_, n) => first + BigInt(n));
}

async function enqueue(session: Session, id: string, { deliveries, at, nextAt = at }: Queued): Promise<void> {
	if (deliveries.length === 0) return;
	const numbers = await takeNumbers(session, id, deliveries.length);
	const waiting = { state: "waiting", createdAt: at, attempts: 0n, nextAt, finishedAt: undefined, tries: "[]" };
	const rows = numbers.flatMap((number, index) => {
		const { [index]: delivery } = deliveries;
		return delivery ? [columnsOf("deliveries", { ...delivery, endpointId: id, number, ...waiting })] : [];
	});
	// What is told again, as by a replay, takes the place of the former delivery.
	await session.remove("deliveries", rows);
	await session.insert("deliveries", rows);
}

/** Notes a result, unless the conversation of the delivery was erased meanwhile. */
async function recordResult(session: Session, endpoint: string, result: DeliveryResult): Promise<void> {
	await session.all(
		`UPDATE ${session.dialect.schema}deliveries
		SET state = ?, attempts = ?, next_at = ?, finished_at = ?, tries = ?
		WHERE endpoint_id = ? AND id = ? AND conversation_id = ?`,
		...[result.state, result.attempts, result.nextAt ?? null, result.finishedAt ?? null, JSON.stringify(result.tries)],
		...[endpoint, result.id, result.conversationId],
	);
}

function endpointColumns(endpoint: EndpointRow): Columns {
	const { id, generation, createdAt, createdBy, name, owner, ...changes } = endpoint;
	const fixed = { id, generation, createdAt, createdBy, name, owner, nextNumber: 1n };
	return { ...columnsOf("endpoints", fixed), ...changedColumns(changes) };
}

function changedColumns({ changes, include, failures, ...others }: EndpointChange): Columns {
	return columnsOf("endpoints", {
		...others,
		...(changes && { changes: changes.join() }),
		...(include && { include: include.join() }),
		...(failures !== undefined && { failures: BigInt(failures) }),
	});
}

function endpointFrom(row: Row): EndpointRow {
	const { nextNumber, ...endpoint } = readRow("endpoints", row);
	const list = (names: string) => names.split(",").filter(Boolean);
	return {
		...endpoint,
		changes: list(endpoint.changes),
		include: list(endpoint.include),
		state: endpointStates.find((known) => known === endpoint.state) ?? "disabled",
		failures: Number(endpoint.failures),
	};
}

function deliveryFrom(row: Row): DeliveryRow {
	const { endpointId, ...delivery } = readRow("deliveries", row);
	return {
		...delivery,
		state: deliveryStates.find((known) => known === delivery.state) ?? "failed",
		attempts: Number(delivery.attempts),
		tries: triesFrom(delivery.tries),
	};
}

function triesFrom(json: string): Try[] {
	const parsed: unknown = JSON.parse(json);
	if (!Array.isArray(parsed)) throw new TypeError("tries are no list");
	return parsed.map((one: Readonly<Record<string, unknown>>) => ({
		at: Number(one.at),
		duration: Number(one.duration),
		status: Number(one.status),
		error: String(one.error),
		answer: String(one.answer),
	}));
}
