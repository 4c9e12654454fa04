export const ENGINES = ["sqlite", "postgres"] as const;
export type Engine = (typeof ENGINES)[number];

/**
 * The tables of each engine. A new table must be exported, or derived from what is exported when it is imported. What a
 * query returns here is the same in a database and in what was imported from its export.
 */
export const TABLES: Readonly<Record<Engine, Readonly<Record<string, string | "made by each database itself">>>> = {
	sqlite: {
		access_keys: "SELECT * FROM access_keys ORDER BY name",
		activities: "SELECT * FROM activities ORDER BY conversation_id",
		audit: "SELECT * FROM audit ORDER BY number",
		budgets: "SELECT * FROM budgets ORDER BY id",
		changed_conversations: "made by each database itself",
		children: "SELECT * FROM children ORDER BY conversation_id, child",
		conversations: "SELECT * FROM conversations ORDER BY conversation_id",
		deliveries: "made by each database itself",
		endpoints: "SELECT * FROM endpoints ORDER BY id",
		erasures: "SELECT * FROM erasures ORDER BY sequence",
		// Those of an import lack the times of events that were removed.
		event_times: "made by each database itself",
		events: "SELECT a.conversation_id, e.* FROM events e JOIN activities a ON a.id = e.activity ORDER BY sequence",
		events_of_owners: "SELECT * FROM events_of_owners ORDER BY owner, sequence",
		gaps: "SELECT * FROM gaps ORDER BY conversation_id, kind, missing",
		heads: "SELECT * FROM heads ORDER BY conversation_id",
		logs: "SELECT log, pruned_through, last_removal FROM logs ORDER BY log",
		notices: "SELECT * FROM notices ORDER BY id",
		pruned: "SELECT * FROM pruned ORDER BY log, conversation_id",
		refusals: "made by each database itself",
		refused_posts: "SELECT * FROM refused_posts ORDER BY id",
		search_progress: "made by each database itself",
		search_texts: "made by each database itself",
		search_title_words: "made by each database itself",
		search_titles: "made by each database itself",
		senders: "SELECT * FROM senders ORDER BY owner, sender",
		store_state: "SELECT clock FROM store_state",
		tags: "SELECT c.conversation_id, t.* FROM tags t JOIN conversations c ON c.id = t.conversation ORDER BY 1, t.key",
		titles: "SELECT c.conversation_id FROM titles t JOIN conversations c ON c.id = t.rowid ORDER BY 1",
		// What is kept of a pruned conversation stays where it is booked.
		untimed_calls: `
			SELECT * FROM untimed_calls
			WHERE conversation_id NOT IN (SELECT conversation_id FROM usage_conversations WHERE is_kept) ORDER BY 1, 2, 3
		`,
		updates:
			"SELECT c.conversation_id, u.* FROM updates u JOIN conversations c ON c.id = u.conversation ORDER BY sequence",
		updates_of_owners: "SELECT * FROM updates_of_owners ORDER BY owner, sequence",
		usage_conversations:
			"SELECT conversation_id, life_began_at, ledger, sender, owner, source_id FROM usage_conversations WHERE is_kept ORDER BY 1",
		usage_days: `
			SELECT k.conversation_id, d.day, d.model, d.usage_id, d.agent_kind
			FROM usage_days d JOIN usage_conversations k ON k.id = d.conversation ORDER BY 1, 2, 3, 4
		`,
		usage_ledger: `
			SELECT k.conversation_id, l.quarter, l.model, l.usage_id, l.agent_kind, l.cost, l.calls
			FROM usage_ledger l JOIN usage_conversations k ON k.id = l.conversation ORDER BY 1, 2, 3, 4
		`,
		usage_sums: "SELECT * FROM usage_sums ORDER BY length, start, model, usage_id, agent_kind",
		views: "made by each database itself",
	},
	postgres: {
		access_keys: "SELECT * FROM conversation_updates.access_keys ORDER BY name",
		activities: "SELECT * FROM conversation_updates.activities ORDER BY conversation_id",
		audit: "SELECT * FROM conversation_updates.audit ORDER BY number",
		budgets: "SELECT * FROM conversation_updates.budgets ORDER BY id",
		changed_conversations: "made by each database itself",
		children: "SELECT * FROM conversation_updates.children ORDER BY conversation_id, child",
		claims: "made by each database itself",
		conversations: "SELECT * FROM conversation_updates.conversations ORDER BY conversation_id",
		deliveries: "made by each database itself",
		endpoints: "SELECT * FROM conversation_updates.endpoints ORDER BY id",
		erasures: "SELECT * FROM conversation_updates.erasures ORDER BY sequence",
		event_times: "made by each database itself",
		events: "SELECT * FROM conversation_updates.events ORDER BY sequence",
		gaps: "SELECT * FROM conversation_updates.gaps ORDER BY conversation_id, kind, missing",
		heads: "SELECT * FROM conversation_updates.heads ORDER BY conversation_id",
		notices: "SELECT * FROM conversation_updates.notices ORDER BY id",
		// `rewrites` tells running processes of changes.
		positions: "SELECT newest_update, newest_event FROM conversation_updates.positions",
		pruned: "SELECT * FROM conversation_updates.pruned ORDER BY log, conversation_id",
		refusals: "made by each database itself",
		refused_posts: "SELECT * FROM conversation_updates.refused_posts ORDER BY id",
		removals: "SELECT * FROM conversation_updates.removals ORDER BY log",
		retention: "SELECT * FROM conversation_updates.retention",
		schema_versions: "made by each database itself",
		search_progress: "made by each database itself",
		search_texts: "made by each database itself",
		search_titles: "made by each database itself",
		senders: "SELECT * FROM conversation_updates.senders ORDER BY owner, sender",
		tags: "SELECT * FROM conversation_updates.tags ORDER BY conversation_id, key",
		titles: "SELECT * FROM conversation_updates.titles ORDER BY conversation_id",
		unfinished_import: "made by each database itself",
		untimed_calls: `
			SELECT * FROM conversation_updates.untimed_calls
			WHERE conversation_id NOT IN (SELECT id FROM conversation_updates.usage_conversations WHERE is_kept) ORDER BY 1, 2, 3
		`,
		updates: "SELECT * FROM conversation_updates.updates ORDER BY sequence",
		usage_conversations: "SELECT * FROM conversation_updates.usage_conversations WHERE is_kept ORDER BY id",
		usage_days: "SELECT * FROM conversation_updates.usage_days ORDER BY conversation, day, model, usage_id",
		usage_ledger: "SELECT * FROM conversation_updates.usage_ledger ORDER BY conversation, quarter, model",
		usage_sums: "SELECT * FROM conversation_updates.usage_sums ORDER BY length, start, model",
		views: "made by each database itself",
	},
};
