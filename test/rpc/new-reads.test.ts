import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { expect, test } from "vitest";
import { ConversationService } from "../../gen/conversations/v1/conversation_service_pb.js";
import { Gate } from "../../src/access/gate.ts";
import { hashKey, Keyring } from "../../src/access/keys.ts";
import { ConversationReads } from "../../src/conversations/conversation-reads.ts";
import { visibleStore } from "../../src/conversations/read/visible-store.ts";
import { EventFormat } from "../../src/events/event-format.ts";
import { unary } from "../../src/rpc/rpc-method.ts";
import { SERVICES } from "../../src/rpc/services.ts";
import { Admission } from "../../src/transports/admission.ts";
import { connectHandlers } from "../../src/transports/connect/connect-adapter.ts";
import { observed } from "../../src/transports/http/exchange.ts";
import { listenHttp } from "../../src/transports/http/http-listener.ts";
import { createRouter, type Route } from "../../src/transports/http/router.ts";
import { HeldBatches } from "../../src/transports/stream-messages.ts";
import { format, Reading } from "../conversations/read/reading.ts";
import { unobservedRequests } from "../support/requests.ts";
import { silentLog } from "../support/silent-log.ts";

const holder = (name: string, owner: string | undefined) => ({
	...{ name, owner, scopes: new Set(["read" as const]), hash: hashKey(`key of ${name}`) },
});
const LIST = { pageSize: 0, pageToken: "", full: false, secrets: "redacted" } as const;

test("an RPC and a route that are added get reads that are limited to the owner of their caller", async () => {
	await using reading = await Reading.open();
	const { store, vault } = reading;
	const ids: string[] = [];
	for (const owner of ["red", "blue", undefined]) {
		const { sequence } = await reading.keep({ title: `${owner}` });
		const [update] = await store.updates.list({ after: sequence - 1n, limit: 1, withRecords: false });
		ids.push(update?.conversationId ?? "");
		if (owner !== undefined) await store.assignOwner({ owner, of: { ids: ids.slice(-1) }, limit: 1 });
	}
	const stopping = new AbortController();
	const reads = new ConversationReads({
		...{ store, format, vault, events: new EventFormat(format, [], "UTC"), watches: { stopping: stopping.signal } },
		refused: { bodyOf: async () => undefined },
		...{ clocks: { of: () => undefined }, onUnreadable: () => undefined, onUnreadableEvent: () => undefined },
		onErased: () => undefined,
	});
	// Their authors write nothing about owners. A context of methods and routes has no other way to read conversations.
	const methods = [
		unary(ConversationService.method.getConversation, async (_, caller) => ({
			conversation: { title: (await reads.of(caller).list.list(LIST)).conversations.map(titleOf).join() },
		})),
	];
	const route: Route = {
		...{ method: "GET", path: "/made-up", scope: "read" },
		handle: async ({ principal }) => {
			if (principal === undefined) throw new Error("the gate let nobody in");
			return JSON.stringify((await reads.of(principal).list.list(LIST)).conversations.map(titleOf));
		},
	};
	const gate = new Gate(new Keyring([holder("red", "red"), holder("new", "new"), holder("all", undefined)]), SERVICES);
	const admission = new Admission(2 ** 20);
	const options = { methods, gate, admission, held: new HeldBatches(admission), stopping: stopping.signal };
	const router = createRouter({
		...{ routes: [route], rpcs: connectHandlers({ ...options, maxBodyBytes: 2 ** 20 }), gate, admission },
	});
	const listening = { address: { host: "127.0.0.1", port: 0 }, tls: undefined, log: silentLog() };
	const http = await listenHttp(listening, observed(unobservedRequests(), router));
	const baseUrl = `http://127.0.0.1:${http.address.port}`;
	const client = createClient(ConversationService, createConnectTransport({ baseUrl, httpVersion: "1.1" }));
	const answers = async (name: string) => {
		const headers = { "X-Access-Token": `key of ${name}` };
		const { conversation } = await client.getConversation({ id: "" }, { headers });
		return [conversation?.title, await (await fetch(`${baseUrl}/made-up`, { headers })).json()];
	};
	expect(await answers("red")).toEqual(["red", ["red"]]);
	expect(await answers("new")).toEqual(["", []]);
	expect(await answers("all")).toEqual(["undefined,blue,red", ["undefined", "blue", "red"]]);
	stopping.abort();
	await http.stop(1_000, performance.now() + 5_000);
});

test("a method that the store is given later is out of reach of an owner, until it is limited", async () => {
	await using reading = await Reading.open();
	const later = { ...reading.store, listSomethingNew: async () => ["of everybody"] };
	expect("listSomethingNew" in visibleStore(later, undefined)).toBe(true);
	expect("listSomethingNew" in visibleStore(later, "red")).toBe(false);
});

function titleOf({ summary }: { readonly summary: { readonly title?: string | undefined } }): string {
	return summary.title ?? "";
}
