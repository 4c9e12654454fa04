import { existsSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import type { DescService } from "@bufbuild/protobuf";
import { type Client, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { AccessKeys, COMMAND } from "../access/access-keys.ts";
import { Audit } from "../access/audit.ts";
import { StoredKeys } from "../access/stored-keys.ts";
import type { Config } from "../config/config.ts";
import { EraseConversations } from "../conversations/erase.ts";
import { accessKeyMethods, eraseMethods, ownerMethods, rebuildMethod } from "../rpc/admin-methods.ts";
import { inProcessTransport, type RpcMethod } from "../rpc/rpc-method.ts";
import { openStore } from "../store/open.ts";
import type { Store } from "../store/store.ts";
import { createLogger, type Logger } from "../telemetry/log.ts";
import { commandSocketOf, isListening } from "../transports/http/command-socket.ts";
import { parametersOf, readRequest } from "../transports/reads/parameters.ts";

/** The way of a command to the methods that change data. */
interface Admin extends AsyncDisposable {
	/** Calls the methods with all scopes, without an owner, under the name `command`. */
	readonly transport: Transport;
}

/** What methods need that not all commands call. */
export interface OpenedStore {
	readonly config: Config;
	readonly store: Store;
	readonly accessKeys: AccessKeys;
	readonly audit: Audit;
	readonly log: Logger;
	/** Disposes of what is opened for the methods, before the store. */
	readonly opened: AsyncDisposableStack;
}

type MoreMethods = (opened: OpenedStore) => Promise<readonly RpcMethod[]>;

/**
 * Opens the way to the data of the configuration. A service that has a SQLite database open is asked over its Unix
 * socket. Otherwise the store is opened here, until the result is disposed of; the changes are then logged to standard
 * error. With PostgreSQL this process is one more client of the database.
 *
 * @param more makes further methods when the store is opened here
 * @throws Error when there is no database, or the socket or the store cannot be opened
 */
async function openAdmin(config: Config, more?: MoreMethods): Promise<Admin> {
	const { database, accessKeys: configured, clientCertificates } = config;
	if (database.engine === "sqlite") {
		if (!existsSync(database.path))
			throw new Error(`there is no database ${database.path}; the first start of the service creates it`);
		const socketPath = commandSocketOf(database.path);
		if (await isListening(socketPath)) {
			const nodeOptions = { socketPath };
			const transport = createConnectTransport({ baseUrl: "http://localhost", httpVersion: "1.1", nodeOptions });
			return { transport, [Symbol.asyncDispose]: async () => undefined };
		}
	}
	const log = createLogger("info", { write: (line) => process.stderr.write(line) });
	await using opened = new AsyncDisposableStack();
	const store = opened.use(
		await openStore(database, { error: (fields) => log.storeFailed("err" in fields ? fields.err : fields) }, {}),
	);
	const keysLog = { workFailed: log.workFailed, accessKeyExpires: () => undefined };
	const stored = opened.use(await StoredKeys.open(store.accessKeys, { configured, log: keysLog }));
	const audit = new Audit(store);
	const accessKeys = new AccessKeys(stored, [...configured, ...clientCertificates], log);
	const others = more === undefined ? [] : await more({ config, store, accessKeys, audit, log, opened });
	const erasing = new EraseConversations(store, log.conversationErased, log.recordUnreadable);
	const methods = [
		...accessKeyMethods(accessKeys),
		...ownerMethods(store, log),
		...eraseMethods({ of: () => ({ erasing }) }),
		rebuildMethod(store, log),
		...others,
	];
	const transport = inProcessTransport(methods, COMMAND);
	const running = opened.move();
	return { transport, [Symbol.asyncDispose]: () => running.disposeAsync() };
}

/** Milliseconds between two looks at a run. */
const INTERVAL = 100;

/**
 * Looks at a run that a command has started, until it has ended.
 *
 * @param look returns the present state of the run
 * @param onState is called with each state
 * @returns the last state
 */
export async function untilEnded<State extends { readonly running: boolean }>(
	look: () => Promise<State>,
	onState: (state: State) => void,
): Promise<State> {
	for (;;) {
		const state = await look();
		onState(state);
		if (!state.running) return state;
		await delay(INTERVAL);
	}
}

/**
 * Calls a method of a service for a command.
 *
 * @throws Error as {@link openAdmin} does, and with the message of the service when it refuses the call
 */
export async function callAsCommand<Service extends DescService, Response>(
	config: Config,
	service: Service,
	work: (client: Client<Service>) => Promise<Response>,
	more?: MoreMethods,
): Promise<Response> {
	await using admin = await openAdmin(config, more);
	try {
		return await work(createClient(service, admin.transport));
	} catch (error) {
		throw error instanceof ConnectError ? new Error(error.rawMessage) : error;
	}
}

/**
 * Returns the filter that `--filter` names by the parameters of lists, such as `tag=team:a&has_error=false`.
 *
 * @throws ServiceError `invalid_argument` that names the parameter
 */
export function filterOption(search: string): ConversationFilter {
	const parameters = parametersOf(ConversationFilterSchema, "", false);
	return readRequest(ConversationFilterSchema, parameters, { params: {}, search });
}
