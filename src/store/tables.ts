/**
 * The tables of the store, each described once for both engines. Their DDL, inserts and exports follow from it.
 *
 * Times are microseconds since the Unix epoch. Sequences start at 1; gaps are possible. In PostgreSQL all tables are in the
 * schema `conversation_updates`.
 */

export type Engine = "sqlite" | "postgres";

/**
 * The type of a column:
 * - `id`: the id of a conversation, a `uuid` in PostgreSQL
 * - `integer`: 64 bits
 * - `text`: any text. PostgreSQL stores it in the form of postgres/rows.ts, because it cannot have U+0000
 * - `key`: a text that conditions compare and that is never read back: PostgreSQL's indexes have its beginning and a digest
 *   if it is long
 * - `plain`: a text without U+0000, such as JSON. Both engines store it as it is
 * - `uuid`, `time`, `words`: PostgreSQL's `uuid`, `timestamptz` and `tsvector`
 */
export type ColumnType =
	| "id"
	| "integer"
	| "real"
	| "boolean"
	| "text"
	| "key"
	| "plain"
	| "bytes"
	| "uuid"
	| "time"
	| "words";

/** A column. With a question mark it may be null. */
type Column = ColumnType | `${ColumnType}?`;
type Columns = Readonly<Record<string, Column>>;

/** What follows `ON table` in the DDL of an index. */
type Index = string | { readonly unique: string };

/** What an engine has in place of, or in addition to, the common description of a table. */
interface OfEngine {
	/** Columns before the common ones. One with a common name replaces it. */
	readonly columns?: Columns;
	/** Common columns that the engine does not have. */
	readonly without?: readonly string[];
	readonly key?: readonly string[];
	readonly indexes?: Readonly<Record<string, Index>>;
}

interface Description {
	/**
	 * Where the rows are when a database is spread over several servers: by their conversation, copied to all servers, or on
	 * the coordinator only. No unique key of a table by conversation lacks the conversation.
	 */
	readonly spread: "conversation" | "reference" | "coordinator";
	/** Without it, both engines have the table. */
	readonly only?: Engine;
	/** Columns with long values come last: SQLite reads the pages before them to reach a column. */
	readonly columns: Columns;
	/** The columns of the primary key. SQLite keeps the rows of a table in their order. */
	readonly key: readonly string[];
	readonly indexes?: Readonly<Record<string, Index>>;
	/** The rows of a new database: what follows the name of the table in an INSERT. */
	readonly rows?: string;
	readonly sqlite?: OfEngine & {
		/**
		 * The column that has the row id of a row of another table, in place of the id of the conversation: rows and indexes are
		 * shorter, and all rows of a conversation are in the same place of an index.
		 */
		readonly reference?: { readonly column: string; readonly table: string };
	};
	readonly postgres?: OfEngine & {
		/** Room for changed rows in a page, in percent of it that is filled. */
		readonly fillfactor?: number;
		/** Bytes that the service itself compresses. */
		readonly external?: string;
	};
}

/** The columns of one packed record or text: see record-column.ts. `bytes` follows as the last column. */
const PACKED = { unpacked_size: "integer?", checksum: "integer" } as const;

/** Who posted a conversation first: the name of the access key or certificate, and the owner of what it posts. */
const OWNERSHIP = { sender: "text?", owner: "text?" } as const;

/** The amounts of usage. `cost` is in units of 10^-9. */
const USAGE = {
	cost: "integer",
	prompt_tokens: "integer",
	completion_tokens: "integer",
	cache_read_tokens: "integer",
	cache_write_tokens: "integer",
	reasoning_tokens: "integer",
	calls: "integer",
} as const;

/** A table of SQLite's logs of owners: the sequences of entries of conversations with an owner, in the order of the log. */
const OF_OWNERS = {
	spread: "coordinator",
	only: "sqlite",
	columns: { owner: "text", sequence: "integer" },
	key: ["owner", "sequence"],
} as const;

const descriptions = {
	/**
	 * Every update with its record. When `base_sequence` is set, `record` is a delta whose base is the whole record of that
	 * update. `size` is the size of the whole record, or slightly more. `summary` is an encoded ConversationSummary without
	 * the fields of the activity, which `activity` has as they were when the update was written.
	 *
	 * SQLite's key is the sequence alone: it appends rows of the log at the end of one tree, whose row id needs no index.
	 */
	updates: {
		spread: "conversation",
		columns: {
			conversation_id: "id",
			sequence: "integer",
			change: "integer",
			current: "boolean",
			previous_sequence: "integer?",
			received_at: "integer",
			origin: "integer",
			base_sequence: "integer?",
			size: "integer",
			redaction_version: "integer",
			schema_version: "integer",
			...PACKED,
			// Who posted the update.
			sender: "text?",
			summary: "bytes",
			activity: "bytes?",
			record: "bytes",
		},
		key: ["conversation_id", "sequence"],
		indexes: { updates_by_base: "(base_sequence) WHERE base_sequence IS NOT NULL" },
		sqlite: {
			columns: { sequence: "integer", conversation: "integer" },
			without: ["conversation_id"],
			key: ["sequence"],
			reference: { column: "conversation", table: "heads" },
			indexes: { updates_by_conversation: "(conversation)" },
		},
		postgres: {
			columns: {
				// That of the conversation, for logs of an owner.
				owner: "text?",
				// Sequence of the event whose error the summary shows. The fields in `activity` lack it, because it is known later.
				error_sequence: "integer?",
			},
			external: "record",
			indexes: {
				updates_by_sequence: "(sequence)",
				updates_by_base: "(conversation_id, base_sequence) WHERE base_sequence IS NOT NULL",
				updates_by_owner: "(owner, sequence) WHERE owner IS NOT NULL",
			},
		},
	},

	/** Every event. `secrets` has the JSON Pointers of encrypted values in `text`, as a JSON array. */
	events: {
		spread: "conversation",
		columns: {
			conversation_id: "id",
			sequence: "integer",
			event_id: "key",
			received_at: "integer",
			happened_at: "integer",
			kind: "text",
			source: "text",
			redaction_version: "integer",
			...PACKED,
			secrets: "plain?",
			// The id of the model's response that the event shows, as far as it is stored.
			llm_response_id: "text?",
			// Who posted the event.
			sender: "text?",
			// Where it comes from, as UpdateOrigin; null for a posted one.
			origin: "integer?",
			text: "bytes",
		},
		key: ["conversation_id", "sequence"],
		indexes: {
			events_by_id: { unique: "(conversation_id, event_id)" },
			events_by_response: "(conversation_id, llm_response_id) WHERE llm_response_id IS NOT NULL",
		},
		sqlite: {
			columns: { sequence: "integer", activity: "integer", event_id: "text" },
			without: ["conversation_id"],
			key: ["sequence"],
			reference: { column: "activity", table: "activities" },
			// They begin with the activity, so that a batch of events touches few pages, however many events there are.
			indexes: {
				events_by_activity: "(activity)",
				events_by_id: { unique: "(activity, event_id)" },
				events_by_response: "(activity, llm_response_id) WHERE llm_response_id IS NOT NULL",
			},
		},
		postgres: {
			// `size` is that of the uncompressed text. `owner` is that of the conversation, for logs of an owner.
			columns: { size: "integer", owner: "text?" },
			external: "text",
			indexes: {
				events_by_sequence: "(sequence)",
				events_by_owner: "(owner, sequence) WHERE owner IS NOT NULL",
			},
		},
	},

	// They are no columns of the logs, because a conversation can get another owner, and rows with records are costly to
	// write again.
	updates_of_owners: OF_OWNERS,
	events_of_owners: OF_OWNERS,

	/**
	 * The times between which the events of each block of 1,024 sequences happened, so that a list of a range of time begins at
	 * its first block. The range of a block may be too wide: it stays when events are removed.
	 */
	event_times: {
		spread: "coordinator",
		columns: { block: "integer", first_at: "integer", last_at: "integer" },
		key: ["block"],
		postgres: { fillfactor: 50 },
	},

	/**
	 * The head of every conversation that has a record: what the next append depends on. `sequence` is that of the current
	 * update. Records are ordered by `order_time`. The columns whose names begin with `newest` describe the newest posted
	 * update.
	 */
	heads: {
		spread: "conversation",
		columns: {
			conversation_id: "id",
			sequence: "integer",
			status: "integer",
			order_time: "integer?",
			// created_at of the records of the conversation's present life; null while none has it.
			life_began_at: "integer?",
			// Times of receipt stand in for missing times of the record: that of the first update, and that of the current one.
			created_at: "integer",
			updated_at: "integer",
			// When the status last became running; null when it never did.
			run_started_at: "integer?",
			newest_sequence: "integer?",
			newest_updated_at: "integer?",
			newest_size: "integer?",
			revision: "integer",
			posted_at: "integer?",
			// Whether stored state updates that are later than the posted record may still have to be applied to it.
			has_unapplied_events: "boolean",
			// The time of the last state update of each member, as JSON.
			member_times: "text?",
			// The conversation of which this one is a fork, and its parent; null when the other one was erased.
			source_id: "key?",
			parent_id: "key?",
			// A conversation without a record has them in `activities` only; else both tables have the same.
			...OWNERSHIP,
		},
		key: ["conversation_id"],
		indexes: {
			heads_unapplied: "(conversation_id) WHERE has_unapplied_events = TRUE",
			// Finds the conversations without an owner.
			heads_by_owner: "(owner)",
		},
		sqlite: {
			columns: { id: "integer" },
			key: ["id"],
			indexes: {
				heads_by_conversation: { unique: "(conversation_id)" },
				heads_unapplied: "(id) WHERE has_unapplied_events = TRUE",
			},
		},
		postgres: { fillfactor: 70 },
	},

	/**
	 * Every conversation that has had events, also without a record: totals over all of its events, with pruned ones. `error`
	 * is the latest error, as JSON; `first_message` the first message of a user.
	 */
	activities: {
		spread: "conversation",
		columns: {
			conversation_id: "id",
			event_count: "integer",
			last_at: "integer",
			// When the latest state update happened.
			last_state_update_at: "integer?",
			leaf_at: "integer?",
			leaf: "text?",
			message_at: "integer?",
			message: "text?",
			first_message_at: "integer?",
			first_message: "text?",
			error_at: "integer?",
			error: "text?",
			error_sequence: "integer?",
			...OWNERSHIP,
		},
		key: ["conversation_id"],
		indexes: { activities_by_owner: "(owner)" },
		sqlite: {
			columns: { id: "integer" },
			key: ["id"],
			indexes: { activities_by_conversation: { unique: "(conversation_id)" } },
		},
		postgres: { fillfactor: 70 },
	},

	/** How far each view has followed the logs: see views/. */
	views: {
		spread: "coordinator",
		columns: { name: "plain", updates: "integer", events: "integer" },
		key: ["name"],
		rows: "VALUES ('conversations', 0, 0), ('usage', 0, 0)",
		postgres: { fillfactor: 10 },
	},

	/** The conversations that the records of one name as its children, by which an erasure finds these records. */
	children: {
		spread: "conversation",
		columns: { conversation_id: "id", child: "key" },
		key: ["conversation_id", "child"],
		indexes: { children_by_child: "(child)" },
	},

	/** Conversations that changed without an entry in a log, such as by a gap that closed, until the views have followed. */
	changed_conversations: { spread: "coordinator", columns: { conversation_id: "id" }, key: ["conversation_id"] },

	/**
	 * The view of conversations: what lists filter and order by. `sequence` is that of the current update. Of a conversation
	 * with events and no record it is that of the newest event less 2^63, so it is negative. Each index for an equality filter
	 * ends in `sequence`, so that it returns conversations in the order of lists.
	 */
	conversations: {
		spread: "conversation",
		columns: {
			conversation_id: "id",
			sequence: "integer",
			status: "integer",
			agent_kind: "key",
			model: "key",
			parent_id: "key?",
			source_id: "key?",
			created_at: "integer",
			updated_at: "integer",
			run_started_at: "integer?",
			posted_at: "integer?",
			...OWNERSHIP,
			// A cost, or tokens, that were not reported: NOT_REPORTED.
			cost: "real",
			// The sum of prompt and completion tokens.
			tokens: "integer",
			// When the latest event happened; without events, the time of the current update.
			activity_at: "integer",
			// Whether the summary shows an error.
			has_error: "boolean",
			// The number of gaps of the conversation, and when the oldest was noticed.
			gap_count: "integer",
			gaps_since: "integer?",
		},
		key: ["conversation_id"],
		indexes: {
			conversations_by_sequence: "(sequence)",
			conversations_by_status: "(status)",
			conversations_by_agent_kind: "(agent_kind)",
			conversations_by_model: "(model)",
			conversations_by_parent: "(parent_id) WHERE parent_id IS NOT NULL",
			conversations_by_source: "(source_id) WHERE source_id IS NOT NULL",
			conversations_by_sender: "(sender)",
			// A list of an owner begins with the newest ones, however many conversations others have.
			conversations_by_owner: "(owner, sequence) WHERE owner IS NOT NULL",
			conversations_by_created: "(created_at, sequence)",
			conversations_by_updated: "(updated_at)",
			conversations_by_cost: "(cost, sequence)",
			conversations_by_tokens: "(tokens, sequence)",
			conversations_by_activity: "(activity_at, sequence)",
			conversations_with_error: "(sequence) WHERE has_error = TRUE",
			conversations_with_gaps: "(sequence) WHERE gap_count > 0",
			// Counts running conversations, whose status is 2.
			conversations_running: "(sender, owner) WHERE status = 2 AND sender IS NOT NULL",
		},
		sqlite: {
			// `id` is that of the head. PostgreSQL has the title in a table of its own.
			columns: { id: "integer", title: "text?" },
			key: ["id"],
			indexes: {
				conversations_by_conversation: { unique: "(conversation_id)" },
			},
		},
		postgres: { fillfactor: 80 },
	},

	/** The tags of the current records. */
	tags: {
		spread: "conversation",
		columns: { conversation_id: "id", key: "key", value: "key" },
		key: ["conversation_id", "key"],
		indexes: { tags_by_value: "(key, value)" },
		sqlite: {
			columns: { conversation: "integer" },
			without: ["conversation_id"],
			key: ["conversation", "key"],
			reference: { column: "conversation", table: "conversations" },
		},
		postgres: { fillfactor: 80 },
	},

	/**
	 * The titles of PostgreSQL, with lower-case ASCII letters. They have a table of their own, so that their index is written
	 * only when a title changes. The service creates the index titles_by_trigram if the extension pg_trgm is installed.
	 */
	titles: {
		spread: "conversation",
		only: "postgres",
		columns: { conversation_id: "id", title: "text" },
		key: ["conversation_id"],
	},

	/**
	 * What is known to be missing of each conversation: see gaps.ts. `missing` is the id of the missing event, or of the refused
	 * post; empty for a missing record. `since` is when it was noticed.
	 */
	gaps: {
		// Few, and each batch of events asks for those of all conversations.
		spread: "coordinator",
		columns: { conversation_id: "id", kind: "plain", missing: "text", after_event_id: "text?", since: "integer" },
		key: ["conversation_id", "kind", "missing"],
		// Finds the forks that miss an event of their source.
		indexes: { gaps_by_missing: "(missing)", gaps_by_since: "(since)" },
	},

	/**
	 * How far each conversation was pruned in each log, also after the conversation itself was removed. `owner` is that of the
	 * conversation then.
	 */
	pruned: {
		spread: "conversation",
		columns: { log: "plain", conversation_id: "id", through: "integer", removal: "integer", owner: "text?" },
		key: ["conversation_id", "log"],
		indexes: {
			pruned_by_removal: "(log, removal, through)",
			// How far the logs of an owner were pruned.
			pruned_by_owner: "(log, owner, through) WHERE owner IS NOT NULL",
		},
	},

	/** Erased conversations: see erasure.ts. Their sequences belong to the log of updates. */
	erasures: {
		spread: "reference",
		columns: { id_digest: "plain", sequence: "integer", owner: "text?", created_at: "integer", erased_at: "integer" },
		key: ["id_digest"],
		indexes: { erasures_by_sequence: { unique: "(sequence)" }, erasures_by_owner: "(owner, sequence)" },
	},

	/** Access keys that were made while the service ran: see access-keys.ts. Scopes are separated by plus signs. */
	access_keys: {
		spread: "coordinator",
		columns: {
			name: "plain",
			sha256: "bytes",
			scopes: "plain",
			owner: "plain",
			created_at: "integer",
			created_by: "plain",
			expires_at: "integer?",
			revoked_at: "integer?",
			last_used_at: "integer?",
		},
		key: ["name"],
	},

	/** Who did what: see audit.ts. Conversations are named by digests, so that an erasure changes nothing here. */
	audit: {
		spread: "coordinator",
		columns: {
			number: "integer",
			at: "integer",
			action: "plain",
			caller: "plain",
			// That of the caller; empty for none.
			owner: "plain",
			subject: "plain",
			details: "plain",
		},
		key: ["number"],
		indexes: { audit_by_owner: "(owner, number)" },
	},

	/**
	 * The view of usage: what was seen of the usage of each conversation, also after the conversation itself was removed.
	 * `ledger` is a text from which its rows follow: see usage/ledger.ts; empty of an erased conversation, whose id is a
	 * random one. `source_id` is the conversation of which it is a fork. `is_kept`: what it follows from was removed in part.
	 */
	usage_conversations: {
		spread: "conversation",
		columns: {
			sender: "text",
			owner: "text",
			source_id: "id?",
			life_began_at: "integer?",
			is_kept: "boolean",
			ledger: "text",
		},
		key: ["id"],
		indexes: {
			usage_conversations_by_owner: "(owner)",
			usage_conversations_by_source: "(source_id) WHERE source_id IS NOT NULL",
		},
		sqlite: {
			columns: { id: "integer", conversation_id: "id" },
			indexes: { usage_conversations_by_conversation: { unique: "(conversation_id)" } },
		},
		postgres: { columns: { id: "id" }, fillfactor: 70 },
	},

	/**
	 * The usage of each conversation. `conversation` is an id of usage_conversations. `quarter` is the number of
	 * quarters of an hour since the Unix epoch.
	 */
	usage_ledger: {
		spread: "conversation",
		columns: {
			conversation: "id",
			quarter: "integer",
			model: "text",
			usage_id: "text",
			agent_kind: "text",
			...USAGE,
		},
		key: ["conversation", "quarter", "model", "usage_id", "agent_kind"],
		// Reports count distinct conversations with this index alone. SQLite's has the columns of the key anyway.
		indexes: { usage_ledger_by_quarter: "(quarter)" },
		sqlite: { columns: { conversation: "integer" } },
		postgres: {
			fillfactor: 80,
			indexes: { usage_ledger_by_quarter: "(quarter) INCLUDE (conversation, model, usage_id, agent_kind)" },
		},
	},

	/**
	 * Calls in usage_ledger that no event has timed: `position` is the place in the list of the usage id. The quarter and the
	 * amounts are those by which they are in the ledger. When an event with the response arrives, they move to its time.
	 */
	untimed_calls: {
		spread: "conversation",
		columns: {
			conversation_id: "id",
			usage_id: "text",
			position: "integer",
			response_id: "text",
			quarter: "integer",
			model: "text",
			agent_kind: "text",
			...USAGE,
		},
		key: ["conversation_id", "usage_id", "position"],
	},

	/**
	 * Sums of usage_ledger over all conversations, for periods of a quarter of an hour, an hour and a day (UTC): `length` and
	 * `start` are in quarters of an hour. Sums of all time have the length 2^32. They begin at 0, those of the time before the
	 * Unix epoch at -2^32.
	 */
	usage_sums: {
		spread: "coordinator",
		columns: {
			length: "integer",
			start: "integer",
			model: "text",
			usage_id: "text",
			agent_kind: "text",
			sender: "text",
			owner: "text",
			...USAGE,
		},
		key: ["length", "start", "model", "usage_id", "agent_kind", "sender", "owner"],
		postgres: { fillfactor: 70 },
	},

	/**
	 * Which conversations have usage on which days (UTC): `day` is the number of days since the Unix epoch. Reports count
	 * distinct conversations with it.
	 */
	usage_days: {
		spread: "conversation",
		columns: { day: "integer", model: "text", conversation: "id", usage_id: "text", agent_kind: "text" },
		key: ["day", "model", "conversation", "usage_id", "agent_kind"],
		sqlite: { columns: { day: "integer", model: "text", conversation: "integer" } },
	},

	/** Totals of each sender and owner, over all of its posts. An empty owner stands for none. */
	senders: {
		spread: "coordinator",
		columns: {
			owner: "plain",
			sender: "plain",
			first_post_at: "integer",
			last_post_at: "integer",
			posts: "integer",
			records: "integer",
			events: "integer",
			usual_interval: "integer",
		},
		key: ["owner", "sender"],
		postgres: { fillfactor: 10 },
	},

	/** Numbers of refused posts by the beginning of a period of five minutes, and by kind. Old periods are removed. */
	refusals: {
		spread: "coordinator",
		columns: { owner: "plain", sender: "plain", since: "integer", kind: "plain", count: "integer" },
		key: ["owner", "sender", "since", "kind"],
	},

	/** Posts that were refused: see refused-posts.ts. */
	refused_posts: {
		spread: "coordinator",
		columns: {
			id: "integer",
			received_at: "integer",
			last_at: "integer",
			// Number of requests that the row stands for.
			requests: "integer",
			sender: "plain?",
			owner: "plain?",
			// Address of a client whose requests had no valid key.
			peer: "plain?",
			route: "plain",
			form: "plain",
			kind: "plain",
			// JSON.
			reasons: "plain",
			conversation_id: "id?",
			// Bytes of the body as it arrived.
			size: "integer",
			accepted: "boolean",
			retried_at: "integer?",
			// Bytes that count towards the room for refused posts.
			bytes: "integer",
			// Compressed and encrypted.
			body: "bytes?",
		},
		key: ["id"],
		indexes: {
			refused_posts_by_owner: "(owner, id) WHERE owner IS NOT NULL",
			refused_posts_by_conversation: "(conversation_id) WHERE conversation_id IS NOT NULL",
			refused_posts_by_peer: "(id) WHERE peer IS NOT NULL",
			// Sums up the room without reading the rows.
			refused_posts_room: "(accepted, id, bytes)",
		},
		postgres: { external: "body" },
	},

	/**
	 * Endpoints, to which the service sends what happens: see forwarding.ts. `generation` grows with each change and each
	 * process that begins to deliver; `next_number` is that of the next delivery.
	 */
	endpoints: {
		spread: "coordinator",
		columns: {
			id: "plain",
			name: "plain",
			// Empty for none.
			owner: "plain",
			url: "plain",
			// Names, separated by commas; so is `include`.
			changes: "plain",
			form: "plain",
			include: "plain",
			state: "plain",
			// Why it is disabled.
			reason: "plain",
			position: "integer",
			next_number: "integer",
			generation: "integer",
			failures: "integer",
			failing_since: "integer?",
			last_success_at: "integer?",
			lost: "integer",
			created_at: "integer",
			created_by: "plain",
			// An encoded ConversationFilter.
			filter: "bytes",
			// Encrypted.
			secrets: "bytes",
		},
		key: ["id"],
		indexes: { endpoints_by_name: { unique: "(owner, name)" } },
		postgres: { fillfactor: 50 },
	},

	/** What endpoints are told, in the order of `number`. */
	deliveries: {
		spread: "coordinator",
		columns: {
			endpoint_id: "plain",
			id: "plain",
			number: "integer",
			change: "plain",
			// Empty for what concerns no single conversation.
			conversation_id: "plain",
			// That of the update; null for what has none, which is told by `data`.
			sequence: "integer?",
			state: "plain",
			created_at: "integer",
			attempts: "integer",
			next_at: "integer?",
			finished_at: "integer?",
			// JSON.
			data: "text?",
			tries: "text",
		},
		key: ["endpoint_id", "id"],
		indexes: {
			deliveries_by_number: "(endpoint_id, number)",
			deliveries_by_state: "(endpoint_id, state, number)",
			deliveries_by_conversation: "(conversation_id) WHERE conversation_id <> ''",
		},
	},

	/** Budgets: see budgets.ts. */
	budgets: {
		spread: "coordinator",
		columns: {
			id: "plain",
			name: "plain",
			// Empty for none.
			owner: "plain",
			// The newest entries of the logs with which it was compared.
			updates: "integer",
			events: "integer",
			created_at: "integer",
			created_by: "plain",
			// An encoded Budget.
			settings: "bytes",
		},
		key: ["id"],
		indexes: { budgets_by_name: { unique: "(owner, name)" } },
	},

	/** What endpoints were told without an update, so that it is told once: see forwarding.ts. */
	notices: {
		spread: "coordinator",
		columns: {
			id: "plain",
			// Empty for what concerns no single conversation.
			conversation_id: "plain",
			noticed_at: "integer",
		},
		key: ["id"],
		indexes: {
			notices_by_conversation: "(conversation_id) WHERE conversation_id <> ''",
			notices_by_time: "(noticed_at)",
		},
	},

	/** How far the index of search comes: see text-index.ts. With PostgreSQL, one process writes it for some time. */
	search_progress: {
		spread: "coordinator",
		columns: { id: "integer", version: "integer", events: "integer", updates: "integer" },
		key: ["id"],
		rows: "(id, version, events, updates) VALUES (1, 0, 0, 0)",
		postgres: { columns: { holder: "plain?", held_until: "time?" }, fillfactor: 10 },
	},

	/** The words of the texts of events, without their order. SQLite has them in a virtual table. */
	search_texts: {
		spread: "conversation",
		only: "postgres",
		columns: { conversation_id: "id", sequence: "integer", words: "words" },
		key: ["conversation_id", "sequence"],
		indexes: {
			search_texts_by_sequence: "(sequence)",
			// Every search reads the whole pending list of an index: 10 µs for each 8 KiB. The server's default is 4 MiB.
			search_texts_by_word: "USING gin (words) WITH (gin_pending_list_limit = 1024)",
		},
	},

	/** The titles of conversations that have words. `digest` identifies the title. SQLite has the words in a virtual table. */
	search_titles: {
		spread: "conversation",
		columns: { conversation_id: "id", digest: "integer" },
		key: ["conversation_id"],
		sqlite: {
			columns: { conversation: "integer" },
			without: ["conversation_id"],
			key: ["conversation"],
			reference: { column: "conversation", table: "heads" },
		},
		postgres: {
			columns: { conversation_id: "id", digest: "integer", words: "words" },
			indexes: { search_titles_by_word: "USING gin (words) WITH (gin_pending_list_limit = 1024)" },
		},
	},

	/**
	 * Values of SQLite's whole store. `checks` counts the writes by which the service tests an idle database. `clock` is the
	 * time of retention, below which history is removed. `open_run` is the id of the run of the service that has opened the
	 * database; null after a clean stop. `must_purge`: whether files may still have something of erased conversations, see
	 * sqlite/purge.ts.
	 */
	store_state: {
		spread: "coordinator",
		only: "sqlite",
		columns: { id: "integer", checks: "integer", clock: "integer?", open_run: "plain?", must_purge: "boolean" },
		key: ["id"],
		rows: "VALUES (1, 0, NULL, NULL, 0)",
	},

	/**
	 * How far each of SQLite's logs was pruned, and the number of its last removal. Sequences up to `skipped_through` are never
	 * assigned.
	 */
	logs: {
		spread: "coordinator",
		only: "sqlite",
		columns: { log: "plain", pruned_through: "integer", last_removal: "integer", skipped_through: "integer" },
		key: ["log"],
		rows: "VALUES ('updates', 0, 0, 0), ('events', 0, 0, 0)",
	},

	/**
	 * PostgreSQL's newest sequence of each log. A transaction that appends takes its sequences from this row, which stays
	 * locked until the transaction has committed. So the order of sequences is the order of commits. `rewrites` is how often
	 * stored entries changed: conversations were given owners, or were erased. Processes that keep entries in memory read them
	 * again when it grows.
	 */
	positions: {
		spread: "coordinator",
		only: "postgres",
		columns: { id: "integer", newest_update: "integer", newest_event: "integer", rewrites: "integer" },
		key: ["id"],
		rows: "VALUES (1, 0, 0, 0)",
		postgres: { fillfactor: 10 },
	},

	/** How far each of PostgreSQL's logs was pruned, and the number of its last removal. */
	removals: {
		spread: "coordinator",
		only: "postgres",
		columns: { log: "plain", pruned_through: "integer", last_removal: "integer" },
		key: ["log"],
		rows: "VALUES ('updates', 0, 0), ('events', 0, 0)",
		postgres: { fillfactor: 10 },
	},

	/** PostgreSQL's time of retention, below which history is removed. */
	retention: {
		spread: "coordinator",
		only: "postgres",
		columns: { id: "integer", clock: "integer?" },
		key: ["id"],
		rows: "VALUES (1, NULL)",
		postgres: { fillfactor: 10 },
	},

	/** Has a row with the manifest of an export until its import into PostgreSQL is finished. */
	unfinished_import: {
		spread: "coordinator",
		only: "postgres",
		columns: { id: "integer", manifest: "plain" },
		key: ["id"],
	},

	/** Work that one process at a time does, such as comparing with an agent server. */
	claims: {
		spread: "coordinator",
		only: "postgres",
		columns: { name: "plain", holder: "plain", until: "integer" },
		key: ["name"],
	},
} as const satisfies Readonly<Record<string, Description>>;

export type TableName = keyof typeof descriptions;

/** A table as an engine has it. */
export interface Table {
	readonly name: TableName;
	readonly spread: Description["spread"];
	readonly columns: Readonly<Record<string, ColumnType>>;
	/** The columns that may be null. */
	readonly nullable: ReadonlySet<string>;
	readonly key: readonly string[];
	readonly indexes: Readonly<Record<string, Index>>;
	readonly rows: string | undefined;
	readonly fillfactor: number | undefined;
	readonly external: string | undefined;
	/** The column with the row id of a row of another table, in place of the id of the conversation. */
	readonly reference: { readonly column: string; readonly table: string } | undefined;
}

/** The types, without a question mark. */
const TYPES: Readonly<Record<Column, ColumnType>> = {
	id: "id",
	"id?": "id",
	integer: "integer",
	"integer?": "integer",
	real: "real",
	"real?": "real",
	boolean: "boolean",
	"boolean?": "boolean",
	text: "text",
	"text?": "text",
	key: "key",
	"key?": "key",
	plain: "plain",
	"plain?": "plain",
	bytes: "bytes",
	"bytes?": "bytes",
	uuid: "uuid",
	"uuid?": "uuid",
	time: "time",
	"time?": "time",
	words: "words",
	"words?": "words",
};

const TABLES: Readonly<Record<Engine, ReadonlyMap<TableName, Table>>> = {
	sqlite: tablesOf("sqlite"),
	postgres: tablesOf("postgres"),
};

/** Returns the tables of an engine. */
export function allTables(engine: Engine): readonly Table[] {
	return [...TABLES[engine].values()];
}

/** @throws Error when the engine has no such table */
export function tableOf(engine: Engine, name: TableName): Table {
	const table = TABLES[engine].get(name);
	if (table === undefined) throw new Error(`${engine} has no table ${name}`);
	return table;
}

function tablesOf(engine: Engine): Map<TableName, Table> {
	const tables = new Map<TableName, Table>();
	for (const name of Object.keys(descriptions)) {
		if (!isName(name)) continue;
		const table: Description = descriptions[name];
		if (table.only !== undefined && table.only !== engine) continue;
		const own: OfEngine = table[engine] ?? {};
		const columns = { ...own.columns, ...table.columns, ...own.columns };
		const present = Object.entries(columns).filter(([column]) => own.without?.includes(column) !== true);
		tables.set(name, {
			name,
			spread: table.spread,
			columns: Object.fromEntries(present.map(([column, type]) => [column, TYPES[type]])),
			nullable: new Set(present.flatMap(([column, type]) => (type.endsWith("?") ? [column] : []))),
			key: own.key ?? table.key,
			indexes: { ...table.indexes, ...own.indexes },
			rows: table.rows,
			fillfactor: engine === "postgres" ? table.postgres?.fillfactor : undefined,
			external: engine === "postgres" ? table.postgres?.external : undefined,
			reference: engine === "sqlite" ? table.sqlite?.reference : undefined,
		});
	}
	return tables;
}

function isName(name: string): name is TableName {
	return name in descriptions;
}
