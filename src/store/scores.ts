import { invalid, ServiceError } from "../errors.ts";
import { addAudits, type NewAuditEntry } from "./access.ts";
import { idDigest } from "./erasure.ts";
import { type EndpointDelivery, enqueueEach } from "./forwarding.ts";
import { columnsFrom } from "./rows.ts";
import { given, type Session, type Test } from "./session.ts";
import type { CriticResult } from "./text-index.ts";
import { columnsOf, type RowOf, readRow, selectRows } from "./typed-rows.ts";
import { nullable, type Row, text } from "./values.ts";
import { lockView } from "./views/follow.ts";

/** Scores of conversations and of their events, and what the view of conversations derives from them. */

/** A score. `givenAt` is in microseconds since the Unix epoch. */
export type ScoreRow = RowOf<"scores">;
/** A score that is given. */
export type GivenScore = Omit<ScoreRow, "owner" | "givenAt">;
/** What stands for a conversation: see {@link deriveScoreValues}. */
export type ScoreValue = RowOf<"score_values">;

/** Maximum length of a comment, in characters (Unicode code points). */
export const MAX_COMMENT = 4_096;
/** Largest absolute value of a number, so that no sum is infinite. */
export const MAX_NUMBER = 1e15;
/** Name of the scores that are results of critics, and of their giver. */
export const CRITIC = "critic";

/** Returns whether a value is a number that a score can be. */
export function isScore(value: unknown): value is number {
	return typeof value === "number" && Math.abs(value) <= MAX_NUMBER;
}

/** What names a score. */
type ScoreTarget = Pick<ScoreRow, "conversationId" | "eventId" | "name" | "giver">;

/** A batch of scores, which is stored as a whole or not at all. */
export interface ScoreBatch {
	/** Of several with the same target, name and giver, the last one counts. */
	readonly scores: readonly GivenScore[];
	/** Only conversations of this owner; undefined for all. */
	readonly owner: string | undefined;
	/** For each score that is changed, with its subject and its details. Its time is that of the scores. */
	readonly audit: NewAuditEntry;
	/** What endpoints are told of conversations whose scores change, in the same transaction. */
	readonly deliveries?: readonly EndpointDelivery[] | undefined;
}

/**
 * Stores a batch. A score takes the place of that of its target, name and giver. Returns how many are new or differ.
 *
 * @throws ServiceError `not_found` or `invalid_argument` that names the first score that is refused, as `scores[3]`
 */
async function setScores(session: Session, batch: ScoreBatch): Promise<number> {
	const { scores, owner, audit, deliveries = [] } = batch;
	const ids = [...new Set(scores.map(({ conversationId }) => conversationId))];
	await lock(session, ids);
	const [owners, events] = await Promise.all([ownersOf(session, ids), storedEvents(session, scores, ids)]);
	const kinds = new Map<string, string>();
	const written = new Map<string, ScoreRow>();
	for (const [n, score] of scores.entries()) {
		const { conversationId, eventId, name, kind } = score;
		const missing = (what: string) =>
			new ServiceError("not_found", `scores[${n}].${what}_id names no ${what} that is stored`);
		const of = owners.get(conversationId);
		if (of === undefined || (owner !== undefined && of !== owner)) throw missing("conversation");
		if (eventId !== "" && !events.has(`${conversationId} ${eventId}`)) throw missing("event");
		const expected = kinds.get(`${of} ${name}`) ?? (await kindOf(session, of, name)) ?? kind;
		if (expected !== kind)
			throw invalid(`scores[${n}].value`, `must be a ${expected}, as the earlier ones of its name are`);
		kinds.set(`${of} ${name}`, kind);
		written.set(targetOf(score), { ...score, givenAt: audit.at, owner: of });
	}
	const before = await writeScores(session, [...written.values()]);
	const changed = [...written].filter(([target, score]) => contentOf(score) !== contentOf(before.get(target)));
	const scored = new Set(changed.map(([, { conversationId }]) => conversationId));
	const told = deliveries.filter(({ delivery }) => scored.has(delivery.conversationId));
	await enqueueEach(session, told, audit.at);
	const entries = changed.flatMap(([target, score]) => entriesFor(audit, before.get(target), shownValue(score)));
	await addAudits(session, entries);
	return changed.length;
}

/** Waits for other changes of scores, so that two do not begin a name with different kinds, and locks the view. */
async function lock(session: Session, ids: readonly string[]): Promise<void> {
	await session.lock(ids);
	// Citus commits all or nothing when it knows of a change on the coordinator: see `MANAGED` of citus.ts.
	await session.all(`UPDATE ${session.dialect.schema}views SET updates = updates WHERE name = 'conversations'`);
}

/** Deletes a score. Returns false if there is none, or the conversation has another owner than the given one. */
async function deleteScore(
	session: Session,
	{ audit, owner, deliveries = [], ...of }: ScoreTarget & Omit<ScoreBatch, "scores">,
): Promise<boolean> {
	await lock(session, [of.conversationId]);
	const columns = Object.entries({ ...columnsOf("scores", of), owner });
	const where = given(columns.map(([column, value]) => [`${column} = ?`, value]));
	const [row] = await session.all(
		`DELETE FROM ${session.dialect.schema}scores WHERE ${where.text} RETURNING *`,
		...where.parameters,
	);
	if (row === undefined) return false;
	await deriveScoreValues(session, [of.conversationId], [of.name]);
	await enqueueEach(session, deliveries, audit.at);
	await addAudits(session, entriesFor(audit, readRow("scores", row), "deleted"));
	return true;
}

/** Stores the results of critics as the scores of their events, whose conversations are locked. */
export async function writeCriticResults(
	session: Session,
	results: readonly (CriticResult & Pick<ScoreRow, "conversationId" | "eventId" | "owner" | "givenAt">)[],
): Promise<void> {
	if (results.length === 0) return;
	await lockView(session, "conversations");
	const from = { name: CRITIC, giver: CRITIC, source: CRITIC, kind: "number", category: undefined };
	const scores = results.map((result) => ({ ...result, ...from }));
	await writeScores(session, scores);
}

/** Writes scores, each with another key. Returns those that they take the place of, by {@link targetOf}. */
async function writeScores(session: Session, scores: readonly ScoreRow[]): Promise<ReadonlyMap<string, ScoreRow>> {
	const { all, isIn, dialect } = session;
	const ids = [...new Set(scores.map(({ conversationId }) => conversationId))];
	const targets = dialect.rowsOf({ conversation_id: "id", event_id: "text", name: "text", giver: "text" });
	const rows = await all(
		`SELECT t.* FROM (${targets}) k ${dialect.join} ${dialect.schema}scores t ON t.conversation_id = k.conversation_id
			AND t.event_id = k.event_id AND t.name = k.name AND t.giver = k.giver AND ${isIn("t.conversation_id")}`,
		{ rows: scores.map(({ conversationId, eventId, name, giver }) => [conversationId, eventId, name, giver]) },
		ids,
	);
	const before = new Map(rows.map((row) => [targetOf(readRow("scores", row)), row]));
	await session.write(
		"scores",
		scores.map((score) => ({ before: before.get(targetOf(score)), after: columnsOf("scores", score) })),
	);
	await deriveScoreValues(session, ids, [...new Set(scores.map(({ name }) => name))]);
	return new Map([...before].map(([target, row]) => [target, readRow("scores", row)]));
}

/**
 * Derives the rows of `score_values` of conversations anew, from their scores and the view of conversations, which is locked.
 * Whoever changes scores calls it, and the view for a conversation that begins or ends. The score that stands for a conversation
 * is the one that it was given last itself; without one, that of its events: the mean of all that have the kind of the last one,
 * or the last category.
 *
 * @param names the only ones that are derived; left out for all
 */
export async function deriveScoreValues(
	session: Session,
	conversationIds: readonly string[],
	names: readonly string[] = [],
): Promise<void> {
	if (conversationIds.length === 0) return;
	const { all, isIn, dialect } = session;
	const { schema } = dialect;
	const isOf = `${isIn("t.conversation_id")} ${names.length > 0 ? `AND t.name IN (${names.map(() => "?").join()})` : ""}`;
	const like = "PARTITION BY t.conversation_id, t.name, t.kind";
	const [stored, derived] = await Promise.all([
		all(`SELECT t.* FROM ${schema}score_values t WHERE ${isOf}`, conversationIds, ...names),
		all(
			`SELECT s.*, c.model, c.agent_kind, c.sender, c.owner, c.cost FROM (
				SELECT t.conversation_id, t.name, t.kind, t.category,
					CASE WHEN t.event_id = '' THEN t.value ELSE avg(t.value) OVER (${like}) END AS value,
					count(*) OVER (${like}) AS scores, sum(t.value) OVER (${like}) AS total,
					row_number() OVER (
						PARTITION BY t.conversation_id, t.name ORDER BY t.event_id <> '', t.given_at DESC, t.event_id DESC, t.giver
					) AS place
				FROM ${schema}scores t WHERE ${isOf}
			) s JOIN ${schema}conversations c ON c.conversation_id = s.conversation_id WHERE s.place = 1`,
			conversationIds,
			...names,
		),
	]);
	const keyOf = (row: Row) => `${text(row.conversation_id)} ${text(row.name)}`;
	const gone = new Map(stored.map((row) => [keyOf(row), row]));
	const changes = derived.map(({ category, place: _, ...row }) => {
		const before = gone.get(keyOf(row));
		gone.delete(keyOf(row));
		const [kind, value] = [text(row.kind), Number(row.value)];
		return {
			before,
			after: { ...columnsFrom(row), shown: shownValue({ kind, value, category: nullable(text, category) }) },
		};
	});
	await session.remove("score_values", [...gone.values()].map(columnsFrom));
	await session.write("score_values", changes);
}

/** Gives the rows of `score_values` of conversations what the view of conversations tells of these. */
export async function describeScoreValues({ all, isIn, dialect }: Session, ids: readonly string[]): Promise<void> {
	const names = ["model", "agent_kind", "sender", "owner", "cost"];
	const of = (table: string) => names.map((name) => `${table}.${name}`).join();
	await all(
		`UPDATE ${dialect.schema}score_values AS t SET ${names.map((name) => `${name} = c.${name}`).join()}
		FROM ${dialect.schema}conversations c WHERE c.conversation_id = t.conversation_id AND ${isIn("t.conversation_id")}
			AND (${of("t")}) IS DISTINCT FROM (${of("c")})`,
		ids,
	);
}

/** Returns the owners of conversations that are stored; empty for none. */
async function ownersOf({ all, isIn, dialect: { schema } }: Session, ids: readonly string[]) {
	const of = (table: string) => `SELECT conversation_id, owner FROM ${schema}${table} WHERE ${isIn("conversation_id")}`;
	const rows = await all(`${of("heads")} UNION ALL ${of("activities")}`, ids, ids);
	return new Map(rows.map((row) => [text(row.conversation_id), nullable(text, row.owner) ?? ""]));
}

/** Returns which events of scores are stored, each after the id of its conversation. */
async function storedEvents(
	{ all, isIn, dialect: { schema, rowsOf, join } }: Session,
	scores: readonly GivenScore[],
	ids: readonly string[],
): Promise<ReadonlySet<string>> {
	const rows = await all(
		`SELECT e.conversation_id, e.event_id FROM (${rowsOf({ conversation_id: "id", event_id: "text" })}) k
		${join} ${schema}events e
			ON e.conversation_id = k.conversation_id AND e.event_id = k.event_id AND ${isIn("e.conversation_id")}`,
		{ rows: scores.map(({ conversationId, eventId }) => [conversationId, eventId]) },
		ids,
	);
	return new Set(rows.map((row) => `${text(row.conversation_id)} ${text(row.event_id)}`));
}

/** Returns the kind of the stored scores of a name and an owner; undefined for none. */
async function kindOf({ all, dialect: { schema } }: Session, owner: string, name: string): Promise<string | undefined> {
	const [row] = await all(`SELECT kind FROM ${schema}scores WHERE owner = ? AND name = ? LIMIT 1`, owner, name);
	return row && text(row.kind);
}

function targetOf({ conversationId, eventId, name, giver }: ScoreTarget): string {
	return JSON.stringify([conversationId, eventId, name, giver]);
}

/** Returns what differs when a score changes. */
function contentOf(score: GivenScore | undefined): string {
	return JSON.stringify([score?.kind, score?.value, score?.category, score?.comment, score?.source]);
}

/** Returns the entry of the audit about a score that there was before, which it tells. Comments go with their conversation. */
function entriesFor(audit: NewAuditEntry, before: ScoreRow | undefined, now: string): NewAuditEntry[] {
	if (before === undefined) return [];
	const { conversationId, eventId, name, giver } = before;
	const what = [name, ...(eventId === "" ? [] : [`of event ${eventId}`]), `by ${giver}`].join(" ");
	const details = `${what}: ${now}, before ${shownValue(before)}`;
	return [{ ...audit, subject: idDigest(conversationId), details }];
}

/** Returns the text by which a condition finds a value. The mean of booleans is a number, unless all are equal. */
function shownValue({ kind, value, category }: Pick<ScoreRow, "kind" | "value" | "category">): string {
	if (category !== undefined) return category;
	return kind === "boolean" && (value === 0 || value === 1) ? String(value === 1) : String(value);
}

/** Which scores of a conversation are listed. */
export interface ScoresQuery {
	readonly conversationId: string;
	/** Undefined for all. */
	readonly name: string | undefined;
	/** Number of scores that are left out at the beginning, and maximum number of the following ones. */
	readonly skipped: number;
	readonly limit: number;
}

export const scoreReads = {
	/** Lists the scores of a conversation and of its events, by event, name and giver. */
	async listScores(session: Session, { conversationId, name, skipped, limit }: ScoresQuery): Promise<ScoreRow[]> {
		const tests: Test[] = [
			["conversation_id = ?", conversationId],
			["name = ?", name],
		];
		return (await selectRows(session, "scores", tests, "event_id, name, giver", skipped + limit)).slice(skipped);
	},
};

export const scoreWrites = { setScores, deleteScore };

/** Returns what stands for conversations, of some names. Part of the view of conversations. */
export async function listScoreValues(
	session: Session,
	{ conversationIds, names }: { readonly conversationIds: readonly string[]; readonly names: readonly string[] },
): Promise<ScoreValue[]> {
	const isIn = session.isIn("conversation_id");
	const of = (name: string): Test[] => [
		[isIn, conversationIds],
		["name = ?", name],
	];
	return (
		await Promise.all(names.map((name) => selectRows(session, "score_values", of(name), "conversation_id")))
	).flat();
}
