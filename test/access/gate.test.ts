import { create, createFileRegistry } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { Gate, rpcPath } from "../../src/access/gate.ts";
import { hashKey, Keyring, scopes } from "../../src/access/keys.ts";
import { ServiceError } from "../../src/errors.ts";
import { SERVICES } from "../../src/rpc/services.ts";

const keyring = new Keyring([
	{ name: "all", scopes: new Set(scopes), owner: undefined, hash: hashKey("every-scope") },
	{ name: "none", scopes: new Set(), owner: undefined, hash: hashKey("no-scope") },
]);

/** Returns the header fields of a request with a key. */
const withKey = (key: string) => ["X-Access-Token", key];

/** Returns a service whose method has no scope, as a developer who does not know the gate might add it. */
function unguardedService() {
	const file = create(FileDescriptorSetSchema, {
		file: [
			{
				name: "unguarded.proto",
				package: "test",
				syntax: "proto3",
				messageType: [{ name: "Nothing" }],
				service: [
					{
						name: "UnguardedService",
						method: [{ name: "Call", inputType: ".test.Nothing", outputType: ".test.Nothing" }],
					},
				],
			},
		],
	});
	const service = createFileRegistry(file).getService("test.UnguardedService");
	if (service === undefined) throw new Error("the descriptor has a service");
	return service;
}

test("a method without a scope is refused even to a key with every scope", () => {
	const gate = new Gate(keyring, [unguardedService()]);
	expect(() => gate.admitRpc("/test.UnguardedService/Call", withKey("every-scope"))).toThrow(
		expect.objectContaining({
			kind: "permission_denied",
			message: "No access key or client certificate can call this method",
		}),
	);
});

test("a client certificate whose name has no scopes is named as the reason, unless the request has a key", () => {
	const certificates = [{ name: "agent-1", scopes: new Set(scopes), owner: undefined }];
	const gate = new Gate(keyring, SERVICES, { certificates });
	expect(gate.admit("ingest", [], () => "agent-1").name).toBe("agent-1");
	expect(gate.admit("ingest", withKey("every-scope"), () => "stranger").name).toBe("all");
	const refusals = [undefined, "stranger"].map((name) => {
		try {
			return gate.admit("ingest", [], () => name).name;
		} catch (error) {
			return error instanceof ServiceError ? [error.kind, error.message] : error;
		}
	});
	expect(refusals).toEqual([
		["unauthenticated", "The access key is missing"],
		[
			"unauthenticated",
			"The name of the client certificate is not in CLIENT_CERTIFICATES, and the request has no valid access key",
		],
	]);
});

test.each(SERVICES.flatMap((service) => service.methods.map(rpcPath)))("%s needs a known key with a scope", (path) => {
	const gate = new Gate(keyring, SERVICES);
	expect(gate.admitRpc(path, withKey("every-scope")).name).toBe("all");
	expect(() => gate.admitRpc(path, [])).toThrow(expect.objectContaining({ kind: "unauthenticated" }));
	expect(() => gate.admitRpc(path, withKey("unknown"))).toThrow(expect.objectContaining({ kind: "unauthenticated" }));
	const refused = expect.objectContaining({ kind: "permission_denied", caller: "none" });
	expect(() => gate.admitRpc(path, withKey("no-scope"))).toThrow(refused);
});
