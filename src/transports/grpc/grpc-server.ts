import {
	type MethodDefinition,
	Server,
	type ServiceDefinition,
	type UntypedServiceImplementation,
} from "@grpc/grpc-js";

/** A request message that cannot be decoded. */
export class UnreadableMessage {
	readonly cause: unknown;

	constructor(cause: unknown) {
		this.cause = cause;
	}
}

/**
 * A server of grpc-js that gives its interceptors an {@link UnreadableMessage} in place of a request that the method
 * cannot decode. grpc-js by itself answers such a request with INTERNAL.
 */
export class GrpcServer extends Server {
	override addService(service: ServiceDefinition, implementation: UntypedServiceImplementation): void {
		const methods = Object.entries(service).map(([name, method]) => [name, withUnreadable(method)] as const);
		super.addService(Object.fromEntries(methods), implementation);
	}
}

function withUnreadable<Request, Response>(
	method: MethodDefinition<Request, Response>,
): MethodDefinition<Request | UnreadableMessage, Response> {
	return {
		...method,
		requestSerialize: (message) => {
			// Only clients serialize requests.
			if (message instanceof UnreadableMessage) throw new TypeError("the message is unreadable");
			return method.requestSerialize(message);
		},
		requestDeserialize: (bytes) => {
			try {
				return method.requestDeserialize(bytes);
			} catch (cause) {
				return new UnreadableMessage(cause);
			}
		},
	};
}
