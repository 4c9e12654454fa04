export const ENGINES = ["sqlite", "postgres"] as const;
export type Engine = (typeof ENGINES)[number];

const OWN = "made by each database itself";

/**
 * The tables, of which PostgreSQL has the schema `conversation_updates`. A new table must be exported, or derived from what is
 * exported when it is imported. What a query returns here is the same in a database and in what was imported from its export.
 */
const COMMON: Readonly<Record<string, string>> = {
	access_keys: "SELECT * FROM access_keys ORDER BY name",
	activities: "SELECT * FROM activities ORDER BY conversation_id",
	audit: "SELECT * FROM audit ORDER BY number",
	budgets: "SELECT * FROM budgets ORDER BY id",
	changed_conversations: OWN,
	children: "SELECT * FROM children ORDER BY conversation_id, child",
	claims: OWN,
	conversations: "SELECT * FROM conversations ORDER BY conversation_id",
	deliveries: OWN,
	endpoints: "SELECT * FROM endpoints ORDER BY id",
	erasures: "SELECT * FROM erasures ORDER BY sequence",
	// Those of an import lack the times of events that were removed.
	event_times: OWN,
	events: "SELECT * FROM events ORDER BY sequence",
	gaps: "SELECT * FROM gaps ORDER BY conversation_id, kind, missing",
	heads: "SELECT * FROM heads ORDER BY conversation_id",
	notices: "SELECT * FROM notices ORDER BY id",
	pruned: "SELECT * FROM pruned ORDER BY log, conversation_id",
	refusals: OWN,
	refused_posts: "SELECT * FROM refused_posts ORDER BY id",
	removals: "SELECT * FROM removals ORDER BY log",
	score_values: "SELECT * FROM score_values ORDER BY conversation_id, name",
	scores: "SELECT * FROM scores ORDER BY conversation_id, event_id, name, giver",
	search_progress: OWN,
	search_texts: OWN,
	senders: "SELECT * FROM senders ORDER BY owner, sender",
	state: OWN,
	tags: "SELECT * FROM tags ORDER BY conversation_id, key",
	// What is kept of a pruned conversation stays where it is booked.
	untimed_calls: `
		SELECT * FROM untimed_calls
		WHERE conversation_id NOT IN (SELECT conversation_id FROM usage_conversations WHERE is_kept) ORDER BY 1, 2, 3
	`,
	updates: "SELECT * FROM updates ORDER BY sequence",
	usage_conversations: "SELECT * FROM usage_conversations WHERE is_kept ORDER BY conversation_id",
	usage_days: "SELECT * FROM usage_days ORDER BY conversation_id, day, model, usage_id",
	usage_ledger: "SELECT * FROM usage_ledger ORDER BY conversation_id, quarter, model",
	usage_sums: "SELECT * FROM usage_sums ORDER BY length, start, model, usage_id, agent_kind",
	views: OWN,
};

export const TABLES: Readonly<Record<Engine, Readonly<Record<string, string | typeof OWN>>>> = {
	sqlite: COMMON,
	postgres: Object.fromEntries(
		Object.entries({ ...COMMON, schema_versions: OWN }).map(([name, sql]) => [
			name,
			sql.replaceAll("FROM ", "FROM conversation_updates."),
		]),
	),
};
