import { audited, KEPT_FOR, MAX_KEPT, REMOVED } from "./access.ts";
import { idDigest } from "./erasure.ts";
import { type GapOf, gapFrom } from "./gaps.ts";
import { given, type Session, type Test } from "./session.ts";
import { changeRows, columnsOf, insertNew, type RowOf, readRow, removeRows, selectRows } from "./typed-rows.ts";
import { bigint, integer, text } from "./values.ts";

/**
 * Endpoints and their deliveries. Times are microseconds since the Unix epoch. What a delivery tells is not stored, but
 * derived when it is sent, unless it has no update.
 */

const endpointStates = ["active", "paused", "disabled"] as const;
export const deliveryStates = ["waiting", "delivered", "failed", "skipped", "lost"] as const;
export type DeliveryState = (typeof deliveryStates)[number];

/**
 * An endpoint. `position` is the sequence of the update through which the log has been followed; `failures` are those since
 * the last success, of the kinds that do not concern one delivery only; `lost` counts the updates that were removed before
 * they were sent.
 */
export interface EndpointRow extends Omit<RowOf<"endpoints">, "state" | "nextNumber"> {
	readonly state: (typeof endpointStates)[number];
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

/** A delivery, with the number of failed tries. Those of a conversation are sent in the order of `number`. */
export interface DeliveryRow extends Omit<RowOf<"deliveries">, "endpointId" | "state" | "tries"> {
	readonly state: DeliveryState;
	/** The newest tries, oldest first. */
	readonly tries: readonly Try[];
}

/** The result of a try. */
export type DeliveryResult = Omit<DeliveryRow, "number" | "change" | "sequence" | "data" | "createdAt">;

/** A delivery for the queue of an endpoint. */
export interface EndpointDelivery {
	readonly endpoint: string;
	readonly delivery: NewDelivery;
}

/** Something to tell endpoints that has no update. The id and the conversation are as for {@link NewDelivery}. */
export interface NewNotice {
	readonly id: string;
	readonly conversationId: string;
	/** What each endpoint is told. */
	readonly deliveries: readonly EndpointDelivery[];
	readonly at: bigint;
}

/** What the last tries say about an endpoint. */
export interface EndpointHealth extends Pick<EndpointRow, "failures" | "failingSince" | "lastSuccessAt"> {
	/** Why it is to be disabled. */
	readonly disabledBecause: string | undefined;
}

/** What tries of deliveries of an endpoint say. */
export interface Tried {
	readonly id: string;
	readonly results: readonly DeliveryResult[];
	readonly health: EndpointHealth;
	/** When all that failed before is tried again; undefined for the times of their own. */
	readonly retryAt: bigint | undefined;
}

/** Number of finished deliveries that are kept of an endpoint. */
const KEPT_DELIVERIES = 10_000;

/** The reads of endpoints and deliveries. */
export const forwardingReads = {
	/** Lists endpoints by owner and name; those of an owner or with an id if these are not undefined. */
	async listEndpoints(
		session: Session,
		{ owner, id }: { readonly owner: string | undefined; readonly id?: string },
	): Promise<ListedEndpoint[]> {
		const { schema } = session.dialect;
		const { text: test, parameters } = given([
			["e.owner = ?", owner],
			["e.id = ?", id],
		]);
		const rows = await session.all(
			`SELECT e.*, (
				SELECT count(*) FROM ${schema}deliveries d WHERE d.endpoint_id = e.id AND d.state = 'waiting'
			) AS waiting FROM ${schema}endpoints e WHERE ${test} ORDER BY e.owner, e.name`,
			...parameters,
		);
		return rows.map((row) => ({ ...endpointFrom(readRow("endpoints", row)), waiting: integer(row.waiting) }));
	},
	/** Lists deliveries of an endpoint, the newest first. */
	async listDeliveries(session: Session, { id, state, before, limit }: DeliveryQuery): Promise<DeliveryRow[]> {
		const tests: Test[] = [
			["endpoint_id = ?", id],
			["state = ?", state],
			["number < ?", before],
		];
		return (await selectRows(session, "deliveries", tests, "number DESC", limit)).map(deliveryFrom);
	},
	/** Lists the first waiting delivery of each conversation in the order in which they are due. */
	async listNextDeliveries(
		session: Session,
		{ id, limit }: { readonly id: string; readonly limit: number },
	): Promise<DeliveryRow[]> {
		const { schema } = session.dialect;
		const rows = await session.all(
			`SELECT * FROM ${schema}deliveries WHERE endpoint_id = ? AND number IN (
				SELECT min(number) FROM ${schema}deliveries WHERE endpoint_id = ? AND state = 'waiting' GROUP BY conversation_id
			) ORDER BY next_at, number LIMIT ?`,
			...[id, id, limit],
		);
		return rows.map((row) => deliveryFrom(readRow("deliveries", row)));
	},
	/** Whether there is a notice with an id. */
	async hasNotice(session: Session, id: string): Promise<boolean> {
		return (await selectRows(session, "notices", [["id = ?", id]], "id")).length > 0;
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

/** Which deliveries of an endpoint are listed. */
export interface DeliveryQuery {
	readonly id: string;
	readonly state: DeliveryState | undefined;
	/** Only those with a smaller number. */
	readonly before?: bigint | undefined;
	readonly limit: number;
}

/** The changes of endpoints and deliveries. */
export const forwardingWrites = {
	/** Stores an endpoint at the newest update, unless its owner has one of this name. Returns whether it was stored. */
	createEndpoint: audited((session: Session, endpoint: EndpointRow) =>
		insertNew(session, "endpoints", { ...endpoint, nextNumber: 1n }),
	),
	changeEndpoint: audited((session: Session, { id, ...changes }: Pick<EndpointRow, "id"> & EndpointChange) =>
		changeRows(session, "endpoints", { id }, changes),
	),
	/** Lets an endpoint go on: from its position, or from a position at which what waits is skipped. */
	resumeEndpoint: audited(
		async (
			session: Session,
			{ id, position, at }: { readonly id: string; readonly position: bigint | undefined; readonly at: bigint },
		): Promise<boolean> => {
			const resumed = { state: "active", reason: "", failures: 0, failingSince: undefined };
			const moved = { ...resumed, ...(position !== undefined && { position }) };
			const isResumed = await changeRows(session, "endpoints", { id }, moved);
			const change = position === undefined ? { attempts: 0, nextAt: at } : endOf("skipped", at);
			await changeRows(session, "deliveries", { endpointId: id, state: "waiting" }, change);
			return isResumed;
		},
	),
	deleteEndpoint: audited(async (session: Session, id: string): Promise<boolean> => {
		const isDeleted = await removeRows(session, "endpoints", { id });
		await removeRows(session, "deliveries", { endpointId: id });
		return isDeleted;
	}),
	/**
	 * Moves the position of an endpoint and puts deliveries into its queue.
	 *
	 * @returns whether it was done: false when it is not at the position `from`, because somebody else has moved it
	 */
	async advanceEndpoint(session: Session, { id, from, position, deliveries, at, nextAt }: Advance): Promise<boolean> {
		if (!(await changeRows(session, "endpoints", { id, position: from }, { position }))) return false;
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
		if (!(await insertNew(session, "notices", { id, conversationId, noticedAt: at }))) return false;
		await enqueueEach(session, deliveries, at);
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
	clearDeliveries: (session: Session, of: { readonly conversationId: string; readonly at: bigint }) =>
		eraseDeliveries(session, of.conversationId, of.at),
	/** Notes the results of tries, if the endpoint exists. */
	async recordTries(session: Session, { id, results, health, retryAt }: Tried): Promise<void> {
		const { disabledBecause: reason, ...figures } = health;
		const lost = results.filter(({ state }) => state === "lost").length;
		const change = { ...figures, ...(reason === undefined ? {} : { state: "disabled", reason }) };
		if (!(await changeRows(session, "endpoints", { id }, change, `lost = lost + ${lost}`))) return;
		for (const result of results) await recordResult(session, id, result);
		if (retryAt !== undefined)
			await session.all(
				`UPDATE ${session.dialect.schema}deliveries SET next_at = ?
				WHERE endpoint_id = ? AND state = 'waiting' AND attempts > 0`,
				...[retryAt, id],
			);
		// An erasure meanwhile has not seen what was put into the queue just after it.
		for (const { state, conversationId, finishedAt } of results)
			if (state === "lost" && conversationId !== "" && (await isErased(session, conversationId)))
				await eraseDeliveries(session, conversationId, finishedAt ?? 0n);
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
			const [number = 0n] = await takeNumbers(session, id, 1);
			const [row] = await selectRows(
				session,
				"deliveries",
				[
					["endpoint_id = ?", id],
					["id = ?", delivery],
				],
				"id",
			);
			if (row === undefined) return undefined;
			const again = { state: "waiting", attempts: 0, nextAt: at, finishedAt: undefined };
			const change = row.state === "waiting" ? again : { ...again, number };
			await changeRows(session, "deliveries", { endpointId: id, id: delivery }, change);
			return deliveryFrom({ ...row, ...change });
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

/** Clears what deliveries have of a conversation that is erased, and sends none of them. */
export async function eraseDeliveries(session: Session, conversationId: string, at: bigint): Promise<void> {
	await removeRows(session, "notices", { conversationId });
	const rows = await selectRows(
		session,
		"deliveries",
		[["conversation_id = ?", conversationId]],
		"endpoint_id, number",
	);
	// Endpoints first, as for all who lock both.
	for (const [id, of] of Map.groupBy(rows, ({ endpointId }) => endpointId)) {
		const lost = of.filter(({ state }) => state === "waiting").length;
		await changeRows(session, "endpoints", { id }, {}, `lost = lost + ${lost}`);
	}
	for (const { endpointId, id, state, tries, finishedAt = at } of rows) {
		const cleared = JSON.stringify(triesFrom(tries).map((one) => ({ ...one, answer: "" })));
		const kept = { conversationId: "", data: undefined, tries: cleared, finishedAt };
		const change = state === "waiting" ? endOf("lost", finishedAt) : { nextAt: undefined };
		await changeRows(session, "deliveries", { endpointId, id }, { ...kept, ...change });
	}
}

async function isErased(session: Session, conversationId: string): Promise<boolean> {
	return (await selectRows(session, "erasures", [["id_digest = ?", idDigest(conversationId)]], "sequence")).length > 0;
}

/** Deliveries to put into a queue. */
export interface Queued {
	readonly deliveries: readonly NewDelivery[];
	readonly at: bigint;
	/** When they are tried first. Default: at once. */
	readonly nextAt?: bigint | undefined;
}

export interface Advance extends Queued {
	readonly id: string;
	readonly from: bigint;
	readonly position: bigint;
}

/** What can be changed of an endpoint. */
export type EndpointChange = Partial<Omit<EndpointRow, "id" | "name" | "owner" | "createdAt" | "createdBy">>;

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

/** Puts deliveries into the queues of their endpoints, if these exist, in one order, as for all who lock several endpoints. */
export async function enqueueEach(
	session: Session,
	deliveries: readonly EndpointDelivery[],
	at: bigint,
): Promise<void> {
	const queues = Map.groupBy(deliveries, ({ endpoint }) => endpoint);
	for (const [endpoint, queued] of [...queues].sort(([a], [b]) => (a < b ? -1 : 1)))
		await enqueue(session, endpoint, { deliveries: queued.map(({ delivery }) => delivery), at });
}

async function enqueue(session: Session, id: string, { deliveries, at, nextAt = at }: Queued): Promise<void> {
	if (deliveries.length === 0) return;
	const numbers = await takeNumbers(session, id, deliveries.length);
	const waiting = { state: "waiting", createdAt: at, attempts: 0, nextAt, finishedAt: undefined, tries: "[]" };
	const rows = numbers.flatMap((number, index) => {
		const { [index]: delivery } = deliveries;
		return delivery ? [columnsOf("deliveries", { ...delivery, endpointId: id, number, ...waiting })] : [];
	});
	// What is told again, as by a replay, takes the place of the former delivery.
	await session.remove("deliveries", rows);
	await session.insert("deliveries", rows);
}

/** Notes a result, unless the delivery was skipped, or its conversation erased, meanwhile. */
async function recordResult(session: Session, endpointId: string, result: DeliveryResult): Promise<void> {
	const { id, conversationId, state, attempts, nextAt, finishedAt, tries } = result;
	const changes = { state, attempts, nextAt, finishedAt, tries: JSON.stringify(tries) };
	await changeRows(session, "deliveries", { endpointId, id, conversationId, state: "waiting" }, changes);
}

/** Returns what changes of a delivery that is not sent. */
function endOf(state: DeliveryState, finishedAt: bigint) {
	return { state, nextAt: undefined, finishedAt };
}

function endpointFrom({ nextNumber, ...endpoint }: RowOf<"endpoints">): EndpointRow {
	return { ...endpoint, state: endpointStates.find((known) => known === endpoint.state) ?? "disabled" };
}

function deliveryFrom({ endpointId, ...delivery }: RowOf<"deliveries">): DeliveryRow {
	return {
		...delivery,
		state: deliveryStates.find((known) => known === delivery.state) ?? "failed",
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
