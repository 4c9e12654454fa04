import { Metadata, type ServerInterceptingCallInterface } from "@grpc/grpc-js";
import { expect, test } from "vitest";
import { ConversationIngestService } from "../../../gen/conversations/v1/conversation_ingest_service_pb.js";
import { Gate } from "../../../src/access/gate.ts";
import { hashKey, Keyring } from "../../../src/access/keys.ts";
import { KEY_HEADER } from "../../../src/access/presented-key.ts";
import { SERVICES } from "../../../src/rpc/services.ts";
import { Admission } from "../../../src/transports/admission.ts";
import { gateInterceptor } from "../../../src/transports/grpc/grpc-gate.ts";
import { LIMITS } from "../../../src/transports/limits.ts";
import { rpcPath } from "../../support/clients.ts";
import { unobservedRequests } from "../../support/requests.ts";
import { KEY } from "../../support/service.ts";

type Listener = Parameters<ServerInterceptingCallInterface["start"]>[0];

/** A grpc-js call whose HTTP/2 stream cannot be found. */
class CallWithoutStream implements ServerInterceptingCallInterface {
	listener: Listener | undefined;

	start(listener: Listener): void {
		this.listener = listener;
	}
	sendMetadata(): void {}
	sendMessage(): void {}
	sendStatus(): void {}
	startRead(): void {}
	getPeer(): string {
		return "";
	}
	getDeadline(): number {
		return Number.POSITIVE_INFINITY;
	}
	getHost(): string {
		return "";
	}
	getAuthContext() {
		return {};
	}
	getConnectionInfo() {
		return {};
	}
	getMetricsRecorder(): never {
		throw new Error("there are no metrics");
	}
}

test("a call without a stream counts as under way until its end, even if it never reaches its method", () => {
	const admission = new Admission(1_000);
	const scopes = new Set(["ingest"] as const);
	const gate = new Gate(new Keyring([{ name: "test", scopes, owner: undefined, hash: hashKey(KEY) }]), SERVICES);
	const requests = unobservedRequests();
	const { interceptor } = gateInterceptor({
		gate,
		admission,
		isStream: () => false,
		onCall: () => undefined,
		requests,
		limits: LIMITS,
	});
	const call = new CallWithoutStream();
	const path = rpcPath(ConversationIngestService.method.ingestConversation);
	const definition = {
		path,
		requestStream: false,
		responseStream: false,
		requestDeserialize: (bytes: Buffer) => bytes,
		responseSerialize: (bytes: Buffer) => bytes,
	};
	interceptor(definition, call).start({
		onReceiveMetadata() {},
		onReceiveMessage() {},
		onReceiveHalfClose() {},
		onCancel() {},
	});
	const metadata = new Metadata();
	metadata.set(KEY_HEADER, KEY);
	call.listener?.onReceiveMetadata(metadata);
	expect(admission.underWay("ingest")).toEqual({ requests: 1, bytes: 0 });
	call.listener?.onCancel();
	expect(admission.underWay("ingest")).toEqual({ requests: 0, bytes: 0 });
});
