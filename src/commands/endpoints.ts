import { toJsonString } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import { ConversationFilterSchema } from "../../gen/conversations/v1/conversation_service_pb.js";
import {
	type Delivery,
	DeliveryState,
	DeliveryStateSchema,
	type Endpoint,
	EndpointState,
	ForwardingService,
	ResumeFrom,
} from "../../gen/conversations/v1/forwarding_service_pb.js";
import type { Config } from "../config/config.ts";
import { endpointsOf } from "../make-parts.ts";
import { forwardingMethods } from "../rpc/forwarding-methods.ts";
import { callAsCommand, filterOption } from "./admin.ts";
import { sequenceOption, UsageError, type Values } from "./options.ts";
import { tableOf, timeText } from "./output.ts";

/** The commands `endpoints`. Each is a client of `ForwardingService`. */

/** What a command prints. */
interface Printed {
	/** To standard output. */
	readonly lines: readonly string[];
	/** A sentence to standard error. */
	readonly note?: string;
}

/** What a command is called with. */
interface Asked {
	readonly name: string;
	/** Empty for none. */
	readonly owner: string;
	/** Id of a delivery. */
	readonly id: string;
	readonly options: Values;
}

type Action = (client: Client<typeof ForwardingService>, asked: Asked) => Promise<Printed>;

const said = (sentence: string): Printed => ({ lines: [sentence] });

const ACTIONS = {
	async list(client) {
		const { endpoints } = await client.listEndpoints({});
		const head = ["NAME", "OWNER", "STATE", "LAG", "WAITING", "LOST", "LAST SUCCESS", "URL"];
		const rows = endpoints.map(({ name, owner, state, lag, waiting, lost, lastSuccessAt, url }) => [
			...[name, owner || "-", stateText(state), `${lag}`, `${waiting}`, `${lost}`, timeText(lastSuccessAt), url],
		]);
		return { lines: tableOf([head, ...rows]) };
	},
	async show(client, { name, owner }) {
		const { endpoint } = await client.getEndpoint({ name, owner });
		return { lines: endpoint === undefined ? [] : tableOf(membersOf(endpoint)) };
	},
	async create(client, { name, owner, options }) {
		const { url = "", changes = "", form = "", include = "", filter } = options;
		const list = (text: string) => (text === "" ? [] : text.split(","));
		const { secret } = await client.createEndpoint({
			...{ name, owner, url, form, changes: list(changes), include: list(include) },
			...(filter === undefined ? {} : { filter: filterOption(filter) }),
		});
		return { lines: [secret], note: `The endpoint ${name} was created. Its secret is shown only once.` };
	},
	async pause(client, { name, owner }) {
		await client.pauseEndpoint({ name, owner });
		return said(`The endpoint ${name} is paused.`);
	},
	async resume(client, { name, owner, options: { from = "position" } }) {
		if (from !== "position" && from !== "now") throw new UsageError("--from must be position or now");
		await client.resumeEndpoint({ name, owner, from: from === "now" ? ResumeFrom.NOW : ResumeFrom.POSITION });
		return said(`The endpoint ${name} goes on from ${from === "now" ? "now" : "its position"}.`);
	},
	async test(client, { name, owner }) {
		const { success, try: one } = await client.testEndpoint({ name, owner });
		if (!success) throw new Error(`the endpoint did not accept it: ${one?.error}`);
		return said(`The endpoint ${name} answered with ${one?.status} after ${one?.durationMs} ms.`);
	},
	async "rotate-secret"(client, { name, owner }) {
		const { secret } = await client.rotateEndpointSecret({ name, owner });
		const note = `The endpoint ${name} has a new secret, which is shown only once. The former one signs for 24 hours, too.`;
		return { lines: [secret], note };
	},
	async replay(client, { name, owner, options }) {
		const [from, to] = [sequenceOption(options, "from"), sequenceOption(options, "to")];
		if (from === undefined || to === undefined)
			throw new UsageError("Give the first and the last sequence with --from and --to");
		const { deliveries } = await client.replayEndpoint({ name, owner, from, to });
		return said(`${deliveries} ${deliveries === 1n ? "delivery is" : "deliveries are"} sent again.`);
	},
	async deliveries(client, { name, owner, options: { status = "" } }) {
		const state = status === "" ? DeliveryState.UNSPECIFIED : STATES.get(status);
		if (state === undefined) throw new UsageError("--status must be waiting, delivered, failed, skipped or lost");
		const { deliveries } = await client.listDeliveries({ name, owner, state, pageSize: DELIVERIES });
		const head = ["ID", "CHANGE", "STATE", "NOTICED", "TRIES", "LAST", "NEXT", "CONVERSATION"];
		return { lines: tableOf([head, ...deliveries.map(rowOf)]) };
	},
	async retry(client, { name, owner, id }) {
		await client.retryDelivery({ name, owner, id });
		return said(`The delivery ${id} is sent again.`);
	},
	async delete(client, { name, owner }) {
		await client.deleteEndpoint({ name, owner });
		return said(`The endpoint ${name} is deleted.`);
	},
} as const satisfies Readonly<Record<string, Action>>;

export type EndpointAction = keyof typeof ACTIONS;

/** The states of deliveries by their names. */
const STATES: ReadonlyMap<string, DeliveryState> = new Map(
	DeliveryStateSchema.values.map(({ localName, number }) => [localName.toLowerCase(), number]),
);
/** Number of deliveries that are listed. */
const DELIVERIES = 100;

/** Does something with endpoints. Returns what is printed. */
export async function runEndpoints(
	config: Config,
	action: EndpointAction,
	[name = "", id = ""]: readonly string[],
	options: Values,
): Promise<Printed> {
	const asked = { name, id, owner: options.owner ?? "", options };
	const run: Action = ACTIONS[action];
	return await callAsCommand(
		config,
		ForwardingService,
		(client) => run(client, asked),
		async ({ store, log, opened }) => {
			const { endpoints, shared } = endpointsOf(config, store, log, () => undefined);
			opened.use(shared.sink);
			return forwardingMethods(endpoints, store);
		},
	);
}

function membersOf(endpoint: Endpoint): string[][] {
	const { name, owner, url, changes, filter, form, include, reason, state, position, lag, waiting, lost } = endpoint;
	return [
		["name", name],
		["owner", owner || "-"],
		["url", url],
		["changes", changes.join()],
		["filter", filter === undefined ? "-" : toJsonString(ConversationFilterSchema, filter)],
		["form", form],
		["include", include.join() || "-"],
		["state", reason === "" ? stateText(state) : `${stateText(state)}: ${reason}`],
		["position", `${position}`],
		["lag", `${lag}`],
		["waiting", `${waiting}`],
		["lost", `${lost}`],
		["last success", timeText(endpoint.lastSuccessAt)],
		["failing since", timeText(endpoint.failingSince)],
		["created", `${timeText(endpoint.createdAt)} by ${endpoint.createdBy}`],
	];
}

function rowOf({ id, change, state, createdAt, nextTryAt, conversationId, tries }: Delivery): string[] {
	const last = tries.at(-1);
	const outcome = last === undefined ? "-" : last.error || String(last.status);
	const name = DeliveryState[state].toLowerCase();
	return [
		id,
		change,
		name,
		timeText(createdAt),
		`${tries.length}`,
		outcome,
		timeText(nextTryAt),
		conversationId || "-",
	];
}

function stateText(state: EndpointState): string {
	return EndpointState[state].toLowerCase();
}
