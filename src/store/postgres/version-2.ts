import { NOT_REPORTED } from "../condition.ts";
import { createIndexes, createTable, SCHEMA as SCHEMAS } from "../schema.ts";
import { allTables, tableOf } from "../tables.ts";

const SCHEMA = SCHEMAS.postgres;

/** Indexes of release 1.0.0 that have other columns now, or none. */
const REMOVED_INDEXES = [
	"conversations_by_status",
	"conversations_by_agent_kind",
	"conversations_by_model",
	"conversations_by_parent",
	"conversations_by_source",
	"conversations_by_sender",
	"conversations_by_owner",
	"conversations_of_owner_by_activity",
	"conversations_of_owner_by_created",
	"conversations_of_owner_by_cost",
	"conversations_of_owner_by_tokens",
	"tags_by_key",
	"tags_by_value",
];

/** The statements that upgrade the tables of release 1.0.0. */
export const TO_VERSION_2: readonly string[] = [
	// With Citus, statements that follow each other need the same connections.
	"SET LOCAL citus.multi_shard_modify_mode = 'sequential'",
	...REMOVED_INDEXES.map((name) => `DROP INDEX ${SCHEMA}${name}`),
	`ALTER TABLE ${SCHEMA}tags DROP COLUMN sequence`,
	`ALTER TABLE ${SCHEMA}events DROP COLUMN size`,
	`ALTER TABLE ${SCHEMA}updates DROP COLUMN schema_version`,
	`ALTER TABLE ${SCHEMA}search_progress DROP COLUMN holder, DROP COLUMN held_until`,
	`ALTER TABLE ${SCHEMA}unfinished_import DROP COLUMN manifest`,
	// The summary that 1.0.0 stored left out a cost of 0.
	`UPDATE ${SCHEMA}conversations SET cost = ${NOT_REPORTED} WHERE cost = 0`,
	`UPDATE ${SCHEMA}conversations SET tokens = ${NOT_REPORTED} WHERE NOT EXISTS (
		SELECT 1 FROM ${SCHEMA}heads h WHERE h.conversation_id = ${SCHEMA}conversations.conversation_id
	)`,
	`ALTER TABLE ${SCHEMA}usage_conversations RENAME COLUMN id TO conversation_id`,
	`ALTER TABLE ${SCHEMA}usage_ledger RENAME COLUMN conversation TO conversation_id`,
	`ALTER TABLE ${SCHEMA}usage_days RENAME COLUMN conversation TO conversation_id`,
	// Rows of titles are found by the sequence of an update that had the title, and search has their words.
	`ALTER TABLE ${SCHEMA}titles ADD COLUMN sequence bigint, ADD COLUMN words tsvector`,
	`UPDATE ${SCHEMA}titles t SET sequence = c.sequence FROM ${SCHEMA}conversations c
		WHERE c.conversation_id = t.conversation_id`,
	`DELETE FROM ${SCHEMA}titles WHERE sequence IS NULL`,
	`ALTER TABLE ${SCHEMA}titles DROP CONSTRAINT titles_pkey`,
	`ALTER TABLE ${SCHEMA}titles ADD PRIMARY KEY (conversation_id, sequence)`,
	`DROP TABLE ${SCHEMA}search_titles`,
	`UPDATE ${SCHEMA}search_progress SET updates = 0`,
	...createTable("postgres", tableOf("postgres", "untimed_calls")),
	...createTable("postgres", tableOf("postgres", "state")),
	`UPDATE ${SCHEMA}state s SET newest_update = p.newest_update, newest_event = p.newest_event, rewrites = p.rewrites,
		clock = (SELECT clock FROM ${SCHEMA}retention) FROM ${SCHEMA}positions p`,
	...["positions", "retention", "writers", "conversation_counts", "tag_key_counts", "tag_value_counts"].map(
		(name) => `DROP TABLE ${SCHEMA}${name}`,
	),
	...allTables("postgres")
		.flatMap((table) => createIndexes("postgres", table))
		.map((statement) => statement.replace(" INDEX ", " INDEX IF NOT EXISTS ")),
];
