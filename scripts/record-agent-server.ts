import { writeFileSync } from "node:fs";
import { zstdCompressSync } from "node:zlib";
import { AgentServerClient } from "../src/reconcile/agent-server.ts";

/**
 * Records the answers of a real agent server that a reconciliation reads, for test/reconcile. See CONTRIBUTING.md.
 *
 * Usage: AGENT_SERVER_KEY=… node scripts/record-agent-server.ts URL FILE [PATH=REPLACEMENT …]
 *
 * Each PATH of this machine is replaced in the answers.
 */
const [url = "", file = "", ...replacements] = process.argv.slice(2);
const answers: Record<string, string> = {};
const send = globalThis.fetch;
globalThis.fetch = async (input, init) => {
	const response = await send(input, init);
	const { pathname, search } = new URL(String(input));
	answers[`${pathname}${search}`] = await response.clone().text();
	return response;
};
const key = process.env.AGENT_SERVER_KEY;
const signal = new AbortController().signal;
const client = new AgentServerClient({ url: new URL(url), key }, { maxBytes: 2 ** 24, pageSize: 4, signal });
for await (const { items } of client.conversations())
	for (const { id } of items) {
		for await (const _ of client.events(id, "TIMESTAMP_DESC", signal)) break;
		for await (const _ of client.events(id, "TIMESTAMP", signal));
		await client.record(id, signal);
	}
let text = JSON.stringify(answers, null, "\t");
for (const [from = "", to = ""] of replacements.map((pair) => pair.split("="))) text = text.replaceAll(from, to);
writeFileSync(file, zstdCompressSync(text));
process.stdout.write(`${Object.keys(answers).length} answers, ${text.length} characters\n`);
