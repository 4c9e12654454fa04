import { expect, test } from "vitest";
import { SecretsMode } from "../../gen/conversations/v1/conversation_service_pb.js";
import type { Principal, Scope } from "../../src/access/keys.ts";
import { ServiceError } from "../../src/errors.ts";
import { secretsFormOf } from "../../src/rpc/request-fields.ts";

function holder(...scopes: Scope[]): Principal {
	return { name: "someone", scopes: new Set(scopes), owner: undefined };
}

test("secrets in plain text need the scope secrets", () => {
	expect(() => secretsFormOf(SecretsMode.PLAINTEXT, holder("ingest", "read"))).toThrow(
		new ServiceError("permission_denied", 'The access key or client certificate lacks the scope "secrets"', {
			caller: "someone",
		}),
	);
	expect(secretsFormOf(SecretsMode.PLAINTEXT, holder("read", "secrets"))).toBe("plaintext");
});

test("redacted and encrypted secrets need no additional scope", () => {
	expect(secretsFormOf(SecretsMode.REDACTED, holder("read"))).toBe("redacted");
	expect(secretsFormOf(SecretsMode.ENCRYPTED, holder("read"))).toBe("encrypted");
});
