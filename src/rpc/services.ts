import type { DescService } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import { ConversationIngestService } from "../../gen/conversations/v1/conversation_ingest_service_pb.js";
import type { Ingest } from "../conversations/ingest.ts";
import type { RecordFormat } from "../record/record.ts";
import type { Log } from "../telemetry/log.ts";
import { ingestConversation } from "./ingest-conversation.ts";
import { unary } from "./method.ts";

/** All RPC services of the program. */
export const SERVICES: readonly DescService[] = [ConversationIngestService];

/** Where services are registered: a Connect router, or the gRPC server's adapter. */
export interface ServiceRegistrar {
	service<Desc extends DescService>(service: Desc, implementation: ServiceImpl<Desc>): unknown;
}

/** What the services' methods work with. */
export interface ServiceContext {
	readonly format: RecordFormat;
	readonly ingest: Ingest;
	readonly log: Log;
}

/** Registers the implementations of {@link SERVICES}, the same for every transport. */
export function registerServices(registrar: ServiceRegistrar, { format, ingest, log }: ServiceContext): void {
	registrar.service(ConversationIngestService, { ingestConversation: unary(log, ingestConversation(format, ingest)) });
}
