import { type DescMethod, type DescService, getOption } from "@bufbuild/protobuf";
import { scope as scopeOption } from "../../gen/conversations/options/v1/options_pb.js";
import { ServiceError } from "../errors.ts";
import { authorize, type Keyring, type Principal, type Scope, scopes } from "./keys.ts";

/** Name of the HTTP header and gRPC metadata entry that carries the access key. */
export const KEY_HEADER = "x-access-token";

/**
 * Decides which requests may reach routes and RPCs, before a body is read. It refuses by default: an RPC whose descriptor
 * names no scope cannot be called by anyone.
 */
export class Gate {
	readonly #keyring: Keyring;
	readonly #scopes = new Map<string, Scope | undefined>();

	constructor(keyring: Keyring, services: readonly DescService[]) {
		this.#keyring = keyring;
		for (const service of services)
			for (const method of service.methods) this.#scopes.set(rpcPath(method), scopeOf(method));
	}

	/**
	 * Admits a request that needs a scope; without one, any known key is enough.
	 *
	 * @throws ServiceError `unauthenticated` or `permission_denied`
	 */
	admit(scope: Scope | undefined, key: string | undefined): Principal {
		const principal = this.#keyring.authenticate(key);
		if (scope !== undefined) authorize(principal, scope);
		return principal;
	}

	/**
	 * Admits an RPC by its path, `/package.Service/Method`.
	 *
	 * @throws ServiceError `unauthenticated` or `permission_denied`
	 */
	admitRpc(path: string, key: string | undefined): Principal {
		const principal = this.#keyring.authenticate(key);
		const scope = this.#scopes.get(path);
		if (scope === undefined) throw new ServiceError("permission_denied", "No access key can call this method");
		authorize(principal, scope);
		return principal;
	}
}

/** Path of an RPC in the gRPC and Connect protocols. */
export function rpcPath(method: DescMethod): string {
	return `/${method.parent.typeName}/${method.name}`;
}

function scopeOf(method: DescMethod): Scope | undefined {
	const name = getOption(method, scopeOption);
	return scopes.find((scope) => scope === name);
}
