/**
 * The tables of the store, each described once. Their DDL, inserts and exports follow from it. Both engines have the same
 * tables and columns, except for the index of words.
 *
 * Times are microseconds since the Unix epoch. Sequences start at 1; gaps are possible. An owner that is no null is empty for
 * none. In PostgreSQL all tables are in the schema `conversation_updates`.
 */

export type Engine = "sqlite" | "postgres";

/**
 * The type of a column:
 * - `id`: the id of a conversation, a `uuid` in PostgreSQL
 * - `integer`: 64 bits
 * - `count`: an integer that is a number in JavaScript
 * - `names`: a list of names without commas, which is separated by commas
 * - `text`: any text. PostgreSQL stores it in the form of postgres/session.ts, because it cannot have U+0000
 * - `key`: a text that conditions compare and that is never read back, in the form of `keyOf`: indexes have its beginning and a
 *   digest if it is long
 * - `words`: the words of an index of search, PostgreSQL's `tsvector`. SQLite has them in a virtual table
 */
const columnTypes = ["id", "integer", "count", "real", "boolean", "text", "names", "key", "bytes", "words"] as const;
export type ColumnType = (typeof columnTypes)[number];

/** A column. With a question mark it may be null. */
type Column = ColumnType | `${ColumnType}?`;
type Columns = Readonly<Record<string, Column>>;

/** What follows `ON table` in the DDL of an index. */
type Index = string | { readonly unique: string };

interface Description {
	/**
	 * Where the rows are when a database is spread over several servers: by their conversation, copied to all servers, or on
	 * the coordinator only, which is the default. No unique key of a table by conversation lacks the conversation.
	 */
	readonly spread?: "conversation" | "reference";
	/** Set for the index of words, which each engine has in its own form. Without it, both engines have the table. */
	readonly only?: Engine;
	/** Columns with long values come last: SQLite reads the pages before them to reach a column. */
	readonly columns: Columns;
	/** The columns of the primary key. Default: the first column; if `isSequenced` is set, the conversation and the sequence. */
	readonly key?: readonly string[];
	/**
	 * Whether a row is also found by its `sequence` alone, which no other row has. SQLite keeps the rows in the order of the
	 * sequences: it appends those of a log at the end of one tree, whose row id needs no index.
	 */
	readonly isSequenced?: true;
	readonly indexes?: Readonly<Record<string, Index>>;
	/** The rows of a new database: what follows the name of the table in an INSERT. */
	readonly rows?: string;
	/** Room that PostgreSQL leaves for changed rows in a page, in percent of it that is filled. */
	readonly fillfactor?: number;
	/** The column whose bytes the service itself compresses, so that PostgreSQL need not. */
	readonly external?: string;
}

/** The columns of one packed record or text: see record-column.ts. `bytes` follows as the last column. */
const PACKED = { unpacked_size: "count?", checksum: "count" } as const;

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

const descriptions = {
	/**
	 * Every update with its record. When `base_sequence` is set, `record` is a delta whose base is the whole record of that
	 * update. `size` is the size of the whole record, or slightly more. `summary` is an encoded ConversationSummary without
	 * the fields of the activity, which `activity` has as they were when the update was written.
	 */
	updates: {
		spread: "conversation",
		columns: {
			conversation_id: "id",
			sequence: "integer",
			change: "count",
			current: "boolean",
			previous_sequence: "integer?",
			received_at: "integer",
			origin: "count",
			base_sequence: "integer?",
			size: "count",
			redaction_version: "count",
			...PACKED,
			sender: "text?",
			// That of the conversation, for logs of an owner.
			owner: "text?",
			// Sequence of the event whose error the summary shows, if the fields in `activity` lack it.
			error_sequence: "integer?",
			summary: "bytes",
			activity: "bytes?",
			record: "bytes",
		},
		isSequenced: true,
		indexes: {
			updates_by_base: "(conversation_id, base_sequence) WHERE base_sequence IS NOT NULL",
			updates_by_owner: "(owner, sequence) WHERE owner IS NOT NULL",
		},
		external: "record",
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
			redaction_version: "count",
			...PACKED,
			secrets: "text?",
			// The id of the model's response that the event shows, as far as it is stored.
			llm_response_id: "text?",
			sender: "text?",
			// That of the conversation, for logs of an owner.
			owner: "text?",
			// Where it comes from, as UpdateOrigin; null for a posted one.
			origin: "count?",
			text: "bytes",
		},
		isSequenced: true,
		// They begin with the conversation, so that a batch of events touches few pages, however many events there are.
		indexes: {
			events_by_id: { unique: "(conversation_id, event_id)" },
			events_by_response: "(conversation_id, llm_response_id) WHERE llm_response_id IS NOT NULL",
			events_by_owner: "(owner, sequence) WHERE owner IS NOT NULL",
		},
		external: "text",
	},

	/**
	 * The times between which the events of each block of 1,024 sequences happened, so that a list of a range of time begins at
	 * its first block. The range of a block may be too wide: it stays when events are removed.
	 */
	event_times: {
		columns: { block: "integer", first_at: "integer", last_at: "integer" },
		fillfactor: 50,
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
			status: "count",
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
			newest_size: "count?",
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
		indexes: {
			heads_unapplied: "(conversation_id) WHERE has_unapplied_events = TRUE",
			// Finds the conversations without an owner.
			heads_by_owner: "(owner)",
		},
		fillfactor: 70,
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
		indexes: { activities_by_owner: "(owner)" },
		fillfactor: 70,
	},

	/** How far each view has followed the logs: see views/. */
	views: {
		columns: { name: "text", updates: "integer", events: "integer" },
		rows: "VALUES ('conversations', 0, 0), ('usage', 0, 0)",
		fillfactor: 10,
	},

	/** The conversations that the records of one name as its children, by which an erasure finds these records. */
	children: {
		spread: "conversation",
		columns: { conversation_id: "id", child: "key" },
		key: ["conversation_id", "child"],
		indexes: { children_by_child: "(child)" },
	},

	/** Conversations that changed without an entry in a log, such as by a gap that closed, until the views have followed. */
	changed_conversations: { columns: { conversation_id: "id" } },

	/**
	 * The view of conversations: what lists filter and order by. `sequence` is that of the current update. Of a conversation
	 * with events and no record it is that of the newest event less 2^63, so it is negative.
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
			has_error: "boolean",
			// The number of gaps of the conversation, and when the oldest was noticed.
			gap_count: "integer",
			gaps_since: "integer?",
			title: "text?",
			// What search finds the title by: its words, each with a space on both sides.
			title_words: "text?",
		},
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
		fillfactor: 80,
	},

	tags: {
		spread: "conversation",
		columns: { conversation_id: "id", key: "key", value: "key" },
		key: ["conversation_id", "key"],
		indexes: { tags_by_value: "(key, value)" },
		fillfactor: 80,
	},

	/**
	 * Scores of conversations, and of events of them: see scores.ts. `event_id` is empty for the conversation itself, and otherwise
	 * as `events` has it. `value` is set for numbers and booleans (0 or 1), `category` for categories. `owner` is that of the
	 * conversation.
	 */
	scores: {
		spread: "conversation",
		columns: {
			conversation_id: "id",
			event_id: "text",
			name: "text",
			giver: "text",
			source: "text",
			kind: "text",
			value: "real?",
			category: "text?",
			given_at: "integer",
			owner: "text",
			comment: "text",
		},
		key: ["conversation_id", "event_id", "name", "giver"],
		indexes: {
			// Reports read it alone, one conversation after the other.
			scores_by_name: "(name, conversation_id, kind, category, value, given_at)",
			// Finds the kind of the scores of a name.
			scores_by_owner: "(owner, name, kind)",
		},
		fillfactor: 80,
	},

	/**
	 * Part of the view of conversations: for each name of its scores, the one that stands for a conversation in lists, and what
	 * they add up to, with what reports group by. `shown` is the value as a text; `value` is not set for categories.
	 */
	score_values: {
		spread: "conversation",
		columns: {
			conversation_id: "id",
			name: "text",
			kind: "text",
			value: "real?",
			shown: "text",
			scores: "count",
			total: "real?",
			model: "key",
			agent_kind: "key",
			...OWNERSHIP,
			cost: "real",
		},
		key: ["conversation_id", "name"],
		indexes: {
			score_values_by_value: "(name, value)",
			score_values_by_shown: "(name, shown)",
			// Reports read it alone.
			score_values_by_model: "(name, kind, model, agent_kind, sender, owner, scores, total, cost)",
		},
		fillfactor: 80,
	},

	/**
	 * What is known to be missing of each conversation: see gaps.ts. `missing` is the id of the missing event, or of the refused
	 * post; empty for a missing record. `since` is when it was noticed.
	 */
	gaps: {
		// Few, and each batch of events asks for those of all conversations.
		columns: { conversation_id: "id", kind: "text", missing: "text", after_event_id: "text?", since: "integer" },
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
		columns: { log: "text", conversation_id: "id", through: "integer", removal: "integer", owner: "text?" },
		key: ["conversation_id", "log"],
		indexes: {
			pruned_by_removal: "(log, removal, through)",
			pruned_by_owner: "(log, owner, through) WHERE owner IS NOT NULL",
		},
	},

	/** Erased conversations: see erasure.ts. Their sequences belong to the log of updates. */
	erasures: {
		spread: "reference",
		columns: { id_digest: "text", sequence: "integer", owner: "text?", created_at: "integer", erased_at: "integer" },
		indexes: { erasures_by_sequence: { unique: "(sequence)" }, erasures_by_owner: "(owner, sequence)" },
	},

	/** Access keys that were made while the service ran: see access.ts. Scopes are separated by plus signs. */
	access_keys: {
		columns: {
			name: "text",
			sha256: "bytes",
			scopes: "text",
			owner: "text",
			created_at: "integer",
			created_by: "text",
			expires_at: "integer?",
			revoked_at: "integer?",
			last_used_at: "integer?",
		},
	},

	/** Who did what: see access.ts. Conversations are named by digests, so that an erasure changes nothing here. */
	audit: {
		columns: {
			number: "integer",
			at: "integer",
			action: "text",
			caller: "text",
			// That of the caller.
			owner: "text",
			subject: "text",
			details: "text",
		},
		indexes: { audit_by_owner: "(owner, number)" },
	},

	/**
	 * The view of usage: what was seen of the usage of each conversation, also after the conversation itself was removed.
	 * `ledger` is a text from which its rows follow: see usage/ledger.ts; empty of an erased conversation, whose id is a
	 * random one. `is_kept`: what it follows from was removed in part.
	 */
	usage_conversations: {
		spread: "conversation",
		columns: {
			conversation_id: "id",
			sender: "text",
			owner: "text",
			life_began_at: "integer?",
			is_kept: "boolean",
			ledger: "text",
		},
		indexes: { usage_conversations_by_owner: "(owner)" },
		fillfactor: 70,
	},

	/** The usage of each conversation. `quarter` is the number of quarters of an hour since the Unix epoch. */
	usage_ledger: {
		spread: "conversation",
		columns: {
			conversation_id: "id",
			quarter: "integer",
			model: "text",
			usage_id: "text",
			agent_kind: "text",
			...USAGE,
		},
		key: ["conversation_id", "quarter", "model", "usage_id", "agent_kind"],
		// Reports count distinct conversations with this index alone.
		indexes: { usage_ledger_by_quarter: "(quarter, conversation_id, model, usage_id, agent_kind)" },
		fillfactor: 80,
	},

	/**
	 * Calls of the present life in usage_ledger that no event has timed: `position` is the place in the list of the usage id. The
	 * quarter and the amounts are those by which they are in the ledger. When an event with the response arrives, they move to
	 * its time.
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
		fillfactor: 70,
	},

	/**
	 * Which conversations have usage on which days (UTC): `day` is the number of days since the Unix epoch. Reports count
	 * distinct conversations with it.
	 */
	usage_days: {
		spread: "conversation",
		columns: { day: "integer", model: "text", conversation_id: "id", usage_id: "text", agent_kind: "text" },
		key: ["day", "model", "conversation_id", "usage_id", "agent_kind"],
	},

	/** Totals of each sender and owner, over all of its posts. An empty owner stands for none. */
	senders: {
		columns: {
			owner: "text",
			sender: "text",
			first_post_at: "integer",
			last_post_at: "integer",
			posts: "integer",
			records: "integer",
			events: "integer",
			usual_interval: "integer",
		},
		key: ["owner", "sender"],
		fillfactor: 10,
	},

	/** Numbers of refused posts by the beginning of a period of five minutes, and by kind. Old periods are removed. */
	refusals: {
		columns: { owner: "text", sender: "text", since: "integer", kind: "text", count: "integer" },
		key: ["owner", "sender", "since", "kind"],
	},

	/** Posts that were refused: see refused-posts.ts. */
	refused_posts: {
		columns: {
			id: "integer",
			received_at: "integer",
			// Name of the key or certificate.
			sender: "text",
			owner: "text?",
			// Path of the route or RPC.
			route: "text",
			form: "text",
			// Of the refusal, such as `invalid_record`.
			kind: "text",
			reasons: "text",
			conversation_id: "id?",
			// Bytes of the body as it arrived; 0 when it was not read.
			size: "count",
			// Whether the post was answered with success.
			accepted: "boolean",
			// When it was taken in last without success.
			retried_at: "integer?",
			// Bytes that count towards the room for refused posts.
			bytes: "count",
			// Compressed and encrypted.
			body: "bytes?",
		},
		indexes: {
			refused_posts_by_owner: "(owner, id) WHERE owner IS NOT NULL",
			refused_posts_by_conversation: "(conversation_id) WHERE conversation_id IS NOT NULL",
			// Sums up the room without reading the rows.
			refused_posts_room: "(accepted, id, bytes)",
		},
		external: "body",
	},

	/** Endpoints, to which the service sends what happens: see forwarding.ts. `next_number` is that of the next delivery. */
	endpoints: {
		columns: {
			id: "text",
			name: "text",
			owner: "text",
			url: "text",
			changes: "names",
			form: "text",
			include: "names",
			state: "text",
			// Why it is disabled.
			reason: "text",
			position: "integer",
			next_number: "integer",
			failures: "count",
			failing_since: "integer?",
			last_success_at: "integer?",
			lost: "integer",
			created_at: "integer",
			created_by: "text",
			// An encoded ConversationFilter.
			filter: "bytes",
			// Encrypted.
			secrets: "bytes",
		},
		indexes: { endpoints_by_name: { unique: "(owner, name)" } },
		fillfactor: 50,
	},

	/** What endpoints are told, in the order of `number`. */
	deliveries: {
		columns: {
			endpoint_id: "text",
			id: "text",
			number: "integer",
			change: "text",
			// Empty for what concerns no single conversation.
			conversation_id: "text",
			// That of the update; null for what has none, which is told by `data`.
			sequence: "integer?",
			state: "text",
			created_at: "integer",
			attempts: "count",
			next_at: "integer?",
			finished_at: "integer?",
			data: "text?",
			tries: "text",
		},
		key: ["endpoint_id", "id"],
		indexes: {
			deliveries_by_number: "(endpoint_id, number)",
			deliveries_waiting: "(endpoint_id, conversation_id, number) WHERE state = 'waiting'",
			deliveries_by_conversation: "(conversation_id) WHERE conversation_id <> ''",
		},
	},

	/** Budgets: see budgets.ts. */
	budgets: {
		columns: {
			id: "text",
			name: "text",
			owner: "text",
			// The newest entries of the logs with which it was compared.
			updates: "integer",
			events: "integer",
			created_at: "integer",
			created_by: "text",
			// An encoded Budget.
			settings: "bytes",
		},
		indexes: { budgets_by_name: { unique: "(owner, name)" } },
	},

	/** What endpoints were told without an update, so that it is told once: see forwarding.ts. */
	notices: {
		columns: {
			id: "text",
			// Empty for what concerns no single conversation.
			conversation_id: "text",
			noticed_at: "integer",
		},
		indexes: {
			notices_by_conversation: "(conversation_id) WHERE conversation_id <> ''",
			notices_by_time: "(noticed_at)",
		},
	},

	/** How far the index of search comes: see text-index.ts. */
	search_progress: {
		columns: { id: "integer", version: "integer", events: "integer" },
		rows: "VALUES (1, 0, 0)",
		fillfactor: 10,
	},

	/** The words of the texts of events, without their order. SQLite has them in a virtual table of this name. */
	search_texts: {
		spread: "conversation",
		only: "postgres",
		columns: { conversation_id: "id", sequence: "integer", words: "words" },
		isSequenced: true,
		// Every search reads the whole pending list: 10 µs for each 8 KiB. The server's default is 4 MiB.
		indexes: { search_texts_by_word: "USING gin (words) WITH (gin_pending_list_limit = 1024)" },
	},

	/**
	 * Values of the whole store.
	 *
	 * - `newest_update`, `newest_event`: the newest sequence of each log. In PostgreSQL a transaction that appends takes its
	 *   sequences from this row, which stays locked until the transaction has committed. So the order of sequences is the order
	 *   of commits. SQLite writes it only when entries are removed: the newest sequence is this one or that of the newest entry.
	 * - `rewrites`: how often stored entries changed: conversations were given owners, or were erased. Processes that keep entries
	 *   in memory read them again when it grows.
	 * - `checks`: the writes by which the service tests an idle database.
	 * - `must_purge`: whether files of SQLite may still have something of erased conversations, see sqlite/purge.ts.
	 */
	state: {
		columns: {
			id: "integer",
			newest_update: "integer",
			newest_event: "integer",
			rewrites: "integer",
			checks: "integer",
			must_purge: "boolean",
		},
		rows: "VALUES (1, 0, 0, 0, 0, FALSE)",
		fillfactor: 10,
	},

	/** How far each log was pruned, and the number of its last removal. */
	removals: {
		columns: { log: "text", pruned_through: "integer", last_removal: "integer" },
		rows: "VALUES ('updates', 0, 0), ('events', 0, 0)",
		fillfactor: 10,
	},

	/** Work that one process at a time does, such as comparing with an agent server. */
	claims: {
		columns: { name: "text", holder: "text", until: "integer" },
	},
} as const satisfies Readonly<Record<string, Description>>;

/** The descriptions, with the types of the columns. */
export type Descriptions = typeof descriptions;
export type TableName = keyof Descriptions;

/** A table as its description says. */
export interface Table extends Omit<Description, "columns" | "key" | "indexes"> {
	readonly name: TableName;
	readonly key: readonly string[];
	readonly columns: Readonly<Record<string, ColumnType>>;
	/** The columns that may be null. */
	readonly nullable: ReadonlySet<string>;
	readonly indexes: Readonly<Record<string, Index>>;
}

const TABLES = new Map(
	Object.keys(descriptions)
		.filter(isName)
		.map((name) => [name, tableFrom(name, descriptions[name])]),
);

/** Returns the tables of an engine. */
export function allTables(engine: Engine): readonly Table[] {
	return [...TABLES.values()].filter(({ only = engine }) => only === engine);
}

/** @throws Error when there is no such table */
export function tableOf(name: TableName): Table {
	const table = TABLES.get(name);
	if (table === undefined) throw new Error(`there is no table ${name}`);
	return table;
}

function tableFrom(name: TableName, { columns, indexes = {}, ...others }: Description): Table {
	const all = Object.entries(columns);
	return {
		key: others.isSequenced === true ? ["conversation_id", "sequence"] : Object.keys(columns).slice(0, 1),
		...others,
		name,
		columns: Object.fromEntries(all.map(([column, type]) => [column, typeOf(type)])),
		nullable: new Set(all.flatMap(([column, type]) => (type.endsWith("?") ? [column] : []))),
		indexes,
	};
}

/** Returns the type without a question mark. */
function typeOf(column: Column): ColumnType {
	const found = columnTypes.find((type) => column.startsWith(type) && column.length - type.length < 2);
	if (found === undefined) throw new Error(`there is no type ${column}`);
	return found;
}

function isName(name: string): name is TableName {
	return name in descriptions;
}
