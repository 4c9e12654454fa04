import { toBinary } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { IngestConversationRequestSchema } from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { Ingest } from "../../../src/conversations/ingest/ingest.ts";
import { UpdateParser } from "../../../src/conversations/ingest/update-parser.ts";
import { RecordFormat } from "../../../src/record/record-format.ts";
import { RecordVault } from "../../../src/record/secrets/record-vault.ts";
import { openSqliteStore } from "../../../src/store/sqlite/sqlite.ts";
import { record } from "../../support/fixtures.ts";
import { ingestRequest } from "../../support/record-message.ts";
import { TempFolder } from "../../support/temp.ts";

test("a record whose sender has given up before it is checked is not stored", async () => {
	using folder = new TempFolder();
	const format = new RecordFormat();
	const parser = new UpdateParser(format, new RecordVault(format, []));
	const log = { error: () => undefined };
	const isSame = async () => false;
	await using store = await openSqliteStore(folder.file("conversations.db"), log, { isSame });
	const controller = new AbortController();
	const ingest = new Ingest(store, {
		fromJson: async (body) => parser.fromJson(body),
		fromRequest: async (request) => {
			controller.abort(new Error("given up"));
			return parser.fromRequest(request);
		},
	});
	const request = toBinary(IngestConversationRequestSchema, ingestRequest(record()));
	await expect(ingest.request(request, controller.signal)).rejects.toThrow("given up");
	expect((await ingest.json(Buffer.from(JSON.stringify(record())))).sequence).toBe(1n);
});
