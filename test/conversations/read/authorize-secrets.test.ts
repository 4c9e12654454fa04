import { expect, test } from "vitest";
import type { Principal, Scope } from "../../../src/access/keys.ts";
import { authorizeSecrets } from "../../../src/conversations/read/authorize-secrets.ts";
import { ServiceError } from "../../../src/errors.ts";

function holder(...scopes: Scope[]): Principal {
	return { name: "someone", scopes: new Set(scopes), owner: undefined };
}

test("secrets in plain text need the scope secrets", () => {
	expect(() => authorizeSecrets(holder("ingest", "read"), "plaintext")).toThrow(
		new ServiceError("permission_denied", 'The access key or client certificate lacks the scope "secrets"', {
			caller: "someone",
		}),
	);
	authorizeSecrets(holder("read", "secrets"), "plaintext");
});

test("redacted and encrypted secrets need no additional scope", () => {
	authorizeSecrets(holder("read"), "redacted");
	authorizeSecrets(holder("read"), "encrypted");
});
