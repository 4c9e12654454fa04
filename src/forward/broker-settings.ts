import type { KeyObject } from "node:crypto";

/** Form of a subject of NATS. Subjects that begin with a dollar are those of the server itself. */
export const SUBJECT = /^[\w-]+(?:\.[\w-]+)*$/;
/** Form of a subject that may have wildcards: `*` for one token, `>` at the end for one or more. */
export const SUBJECTS = /^(?:(?:[\w-]+|\*)(?:\.(?:[\w-]+|\*))*(?:\.>)?|>)$/;
/** Form of a topic of Kafka. Topics that begin with two underlines are those of the server itself. */
export const TOPIC = /^(?!__)(?=.*[\w-])[\w.-]{1,249}$/;

/** Subjects or a topic to which endpoints may forward. */
export interface Place {
	/** Has the form {@link SUBJECTS} or {@link TOPIC}. */
	readonly pattern: string;
	/** Owner whose endpoints may forward to it, beside those without an owner; undefined for only the latter. */
	readonly owner: string | undefined;
}

/** How the servers of a kind are used. */
export interface BrokerSettings {
	readonly servers: readonly string[];
	readonly places: readonly Place[];
	readonly tls: BrokerTls | undefined;
}

export interface BrokerTls {
	/** PEM file of the authorities that sign the certificates of servers; undefined for those of Node.js. */
	readonly caFile: string | undefined;
}

interface UserAndPassword {
	readonly user: string;
	readonly password: KeyObject;
}

export interface NatsSettings extends BrokerSettings {
	/** Undefined for none. The file has a JWT and the seed of an NKey. */
	readonly login: UserAndPassword | { readonly token: KeyObject } | { readonly credentialsFile: string } | undefined;
}

/** Mechanisms by which the service shows Kafka who it is. */
export const SASL_MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] as const;

export interface KafkaSettings extends BrokerSettings {
	readonly sasl: (UserAndPassword & { readonly mechanism: (typeof SASL_MECHANISMS)[number] }) | undefined;
}

/**
 * Whether an endpoint may forward to a subject or topic. One without an owner may forward to all places, and to any if there
 * are none; one with an owner only to those of its owner.
 *
 * @param owner empty for none
 */
export function isAllowed(places: readonly Place[], name: string, owner: string): boolean {
	if (owner === "" && places.length === 0) return true;
	return places.some((place) => (owner === "" || place.owner === owner) && covers(place.pattern, name));
}

function covers(pattern: string, name: string): boolean {
	const [wanted, tokens] = [pattern.split("."), name.split(".")];
	const isLonger = tokens.length > wanted.length && wanted.at(-1) === ">";
	if (tokens.length !== wanted.length && !isLonger) return false;
	return wanted.every((token, index) => token === "*" || token === ">" || token === tokens[index]);
}
