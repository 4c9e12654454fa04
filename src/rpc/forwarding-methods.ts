import type { MessageInitShape } from "@bufbuild/protobuf";
import {
	type DeliverySchema,
	DeliveryState,
	DeliveryStateSchema,
	type DeliveryTrySchema,
	type EndpointSchema,
	EndpointStateSchema,
	ForwardingService,
	ResumeFrom,
} from "../../gen/conversations/v1/forwarding_service_pb.js";
import { invalid } from "../conversations/read/filter.ts";
import { pageSize, readPageToken, writePageToken } from "../conversations/read/page.ts";
import { filterOf } from "../forward/endpoint-worker.ts";
import type { Endpoints } from "../forward/endpoints.ts";
import { planEnum } from "../record/plan.ts";
import { type DeliveryRow, deliveryStates, type ListedEndpoint, type Try } from "../store/forwarding.ts";
import type { Store } from "../store/store.ts";
import { timeOf } from "./request-fields.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

const { byName: STATES } = planEnum(EndpointStateSchema);
const { byName: DELIVERY_STATES } = planEnum(DeliveryStateSchema);

/** The methods of `ForwardingService`. */
export function forwardingMethods(endpoints: Endpoints, { updates }: Pick<Store, "updates">): readonly RpcMethod[] {
	const { method } = ForwardingService;
	const shown = async (endpoint: ListedEndpoint) => ({
		endpoint: toEndpoint(endpoint, (await updates.range()).newest),
	});
	return [
		unary(method.createEndpoint, async (request, caller) => {
			const { endpoint, secret } = await endpoints.create(request, caller);
			return { ...(await shown(endpoint)), secret };
		}),
		unary(method.listEndpoints, async (_, caller) => {
			const { newest } = await updates.range();
			return { endpoints: (await endpoints.list(caller)).map((endpoint) => toEndpoint(endpoint, newest)) };
		}),
		unary(method.getEndpoint, async (request, caller) => await shown(await endpoints.get(request, caller))),
		unary(method.updateEndpoint, async (request, caller) => {
			const { url, changes, filter, form, include, updateMask } = request;
			const given = {
				...{ url: url !== "", changes: changes.length > 0, filter: filter !== undefined },
				...{ form: form !== "", include: include.length > 0 },
			};
			const fields = updateMask?.paths ?? Object.entries(given).flatMap(([name, isGiven]) => (isGiven ? [name] : []));
			return await shown(await endpoints.update(request, fields, caller));
		}),
		unary(method.deleteEndpoint, async (request, caller) => {
			await endpoints.delete(request, caller);
			return {};
		}),
		unary(method.pauseEndpoint, async (request, caller) => await shown(await endpoints.pause(request, caller))),
		unary(method.resumeEndpoint, async (request, caller) => {
			const { from } = request;
			if (ResumeFrom[from] === undefined) throw invalid("from", "is not a known place");
			const place = from === ResumeFrom.NOW ? "now" : "position";
			return await shown(await endpoints.resume(request, place, caller));
		}),
		unary(method.testEndpoint, async (request, caller) => {
			const one = await endpoints.test(request, caller);
			return { success: one.error === "", try: toTry(one) };
		}),
		unary(method.rotateEndpointSecret, async (request, caller) => ({
			secret: await endpoints.rotate(request, caller),
		})),
		unary(method.replayEndpoint, async (request, caller) => ({
			deliveries: BigInt(await endpoints.replay(request, request, caller)),
		})),
		unary(method.listDeliveries, async (request, caller) => {
			const { name, owner, state, pageToken } = request;
			const known = deliveryStates.find((one) => DELIVERY_STATES.get(one) === state);
			if (known === undefined && state !== DeliveryState.UNSPECIFIED) throw invalid("state", "is not a known state");
			const scope = { name, owner, state };
			const before = pageToken === "" ? undefined : readPageToken("Deliveries", scope, pageToken);
			const limit = pageSize(request.pageSize);
			const rows = await endpoints.deliveries(request, { state: known, before, limit: limit + 1 }, caller);
			const page = rows.slice(0, limit);
			const last = page.at(-1);
			const hasMore = rows.length > limit && last !== undefined;
			return {
				deliveries: page.map(toDelivery),
				nextPageToken: hasMore ? writePageToken("Deliveries", scope, last.number) : "",
			};
		}),
		unary(method.retryDelivery, async (request, caller) => ({
			delivery: toDelivery(await endpoints.retry(request, request.id, caller)),
		})),
	];
}

function toEndpoint(row: ListedEndpoint, newest: bigint): MessageInitShape<typeof EndpointSchema> {
	const { name, owner, url, changes, form, include, reason, position, lost, createdBy, waiting } = row;
	return {
		...{ name, owner, url, changes: [...changes], form, include: [...include], reason, position, lost, createdBy },
		filter: filterOf(row),
		state: STATES.get(row.state) ?? 0,
		lag: newest > position ? newest - position : 0n,
		waiting: BigInt(waiting),
		lastSuccessAt: timeOf(row.lastSuccessAt),
		failingSince: timeOf(row.failingSince),
		createdAt: timeOf(row.createdAt),
	};
}

function toDelivery(row: DeliveryRow): MessageInitShape<typeof DeliverySchema> {
	const { id, change, conversationId, sequence = 0n } = row;
	return {
		...{ id, change, conversationId, sequence, state: DELIVERY_STATES.get(row.state) ?? 0 },
		createdAt: timeOf(row.createdAt),
		nextTryAt: timeOf(row.nextAt),
		tries: row.tries.map(toTry),
	};
}

function toTry({ at, duration, status, error, answer }: Try): MessageInitShape<typeof DeliveryTrySchema> {
	return { at: timeOf(BigInt(at) * 1000n), durationMs: BigInt(Math.round(duration)), status, error, answer };
}
