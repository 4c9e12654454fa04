import { toBinary } from "@bufbuild/protobuf";
import { z } from "zod";
import {
	ConversationService,
	GetConversationResponseSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { rpcPath } from "../../test/support/clients.ts";
import type { Benchmark } from "../benchmark.ts";
import { ratioFigure } from "../figures.ts";
import { CONVERSATIONS, measurePairs, ServerTarget } from "../pairs.ts";
import { Child } from "../processes/child.ts";
import { DiskFolder, Service } from "../processes/service.ts";
import { type BodyName, conversationId, getRequest } from "../requests.ts";
import { fillHistory, listening, noteOf, readerOf } from "./parts.ts";

/** Cost of reading a record, compared with a server that returns a message of the same size without a lookup. */
export function get(body: BodyName): Benchmark {
	const name = `get-${body}`;
	return {
		name,
		about: "GetConversation, against a unary call of grpc-js that answers a message of the same size",
		async run(settings, report) {
			await using folder = await DiskFolder.create(settings.folder);
			await fillHistory(folder.database, body, CONVERSATIONS, report);
			await using service = await Service.start({ database: folder.database, profile: settings.profile });
			await using yardstick = await Child.start("yardsticks/grpc.ts", listening);
			await using client = await Child.start("load/grpc.ts", z.unknown());
			const id = await conversationId(body, 0);
			const answer = toBinary(GetConversationResponseSchema, await readerOf(service).getConversation({ id }));
			await yardstick.ask({ answer }, z.unknown());
			report(`  the message has ${answer.length} bytes`);

			const template = await getRequest(body);
			const path = rpcPath(ConversationService.method.getConversation);
			const { pid, grpcPort: port, key } = service;
			const subject = { name: "service", pid, port, template, path, key };
			const server = { name: "yardstick", pid: yardstick.pid, port: yardstick.ready.port, path: "/yardstick/Answer" };
			const reference = new ServerTarget(client, { ...subject, ...server });
			const pairs = await measurePairs(settings, reference, new ServerTarget(client, subject), report);
			const ratios = pairs.map(([bare, whole]) => whole.rate / bare.rate);
			return [ratioFigure(name, ratios, { at: "least", value: 0.6 }, noteOf(pairs))];
		},
	};
}
