import { expect, test } from "vitest";
import { Gate } from "../../src/access/gate.ts";
import { hashKey, Keyring } from "../../src/access/keys.ts";
import { ServiceError } from "../../src/errors.ts";
import { SERVICES } from "../../src/rpc/services.ts";

const [OWN, ADMIN] = ["key-of-its-own", "key-of-the-administrator"];
const holder = (name: string, key: string) => ({
	...{ name, owner: undefined, scopes: new Set(["read" as const]), hash: hashKey(key) },
});
const gate = new Gate(new Keyring([holder("own", OWN), holder("admin", ADMIN)]), SERVICES);
const [bearer, basic, session] = [`Bearer ${OWN}`, "Basic dXNlcjpwYXNz", "of the agent server"];
const [two, missing, unknown] = [
	"The request has two different access keys",
	"The access key is missing",
	"The access key is not known",
];

test.each<[outcome: string, ...fields: [name: string, value: string][]]>([
	["own", ["X-Access-Token", OWN]],
	["own", ["authorization", bearer]],
	["own", ["Authorization", `bearer ${OWN}`]],
	["own", ["X-Session-API-Key", OWN]],
	["own", ["X-Access-Token", OWN], ["Authorization", bearer], ["X-Session-API-Key", OWN]],
	["own", ["X-Access-Token", OWN], ["Authorization", basic]],
	["own", ["Authorization", basic], ["Authorization", bearer]],
	["own", ["Authorization", bearer], ["Authorization", bearer]],
	["own", ["X-Access-Token", `${OWN}, ${OWN}`]],
	["own", ["X-Session-API-Key", OWN], ["X-Session-API-Key", OWN]],
	// An agent server sends its own session key with each post.
	["own", ["X-Access-Token", OWN], ["X-Session-API-Key", session]],
	["own", ["Authorization", bearer], ["X-Session-API-Key", session]],
	[unknown, ["X-Session-API-Key", session]],
	[unknown, ["X-Access-Token", "unknown"], ["X-Session-API-Key", session]],
	[missing, ["Authorization", basic]],
	[two, ["Authorization", bearer], ["X-Session-API-Key", ADMIN]],
	[two, ["X-Access-Token", ADMIN], ["Authorization", bearer]],
	[two, ["X-Access-Token", OWN], ["X-Session-API-Key", ADMIN]],
	[two, ["X-Access-Token", OWN], ["Authorization", "Bearer unknown"]],
	[two, ["X-Access-Token", "unknown"], ["X-Session-API-Key", OWN]],
	[two, ["Authorization", bearer], ["Authorization", `Bearer ${ADMIN}`]],
	[two, ["Authorization", `Bearer ${ADMIN}`], ["Authorization", bearer]],
	[two, ["Authorization", bearer], ["Authorization", "Bearer unknown"]],
	[two, ["X-Access-Token", OWN], ["X-Access-Token", ADMIN]],
	[two, ["X-Session-API-Key", OWN], ["X-Session-API-Key", ADMIN]],
])("%s: %j %j", (outcome, ...fields) => {
	const admitted = () => gate.admit("read", fields.flat()).name;
	if (outcome === "own") expect(admitted()).toBe("own");
	else expect(admitted).toThrow(new ServiceError("unauthenticated", outcome));
});
