import leven, { closestMatch } from "leven";
import { variables } from "./variables.ts";

/** Prefixes that only names of this service's variables have. */
const RESERVED_PREFIX =
	/^(?:HTTP_ADDR|GRPC_ADDR|RETENTION_|EVENT_|SENDER_|ACCESS_KEY|ENCRYPTION_KEY|MAX_BODY|MAX_INFLIGHT|REFUSED_|ACCEPT_REFUSED|RECONCILE_|DRAIN_|TLS_|CLIENT_CERTIFICATE|CORS_|RATE_LIMIT)/;
/**
 * Names that other programs use for the settings of these variables. `PORT` is not among them, because many platforms
 * set it by themselves.
 */
const SYNONYMS = [
	[/^HTTP_(?:HOST|PORT|BIND|LISTEN)$/, "HTTP_ADDRESS"],
	[/^GRPC_(?:HOST|PORT|BIND|LISTEN)$/, "GRPC_ADDRESS"],
	[/^(?:DATABASE|DATABASE_(?:DSN|FILE|PATH)|DB_URL)$/, "DATABASE_URL"],
] as const;
/** Variables that Kubernetes sets for each Service of the namespace, whatever the name of the Service. */
const KUBERNETES_VARIABLE = /_SERVICE_(?:HOST|PORT(?:_\w+)?)$|_PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?$/;

/** Returns a message for each name that is not a variable of the service, but must be a mistyped one. */
export function mistypedNames(names: readonly string[]): string[] {
	const own = variables.map(({ name }) => name);
	return names.flatMap((name) => {
		// For a Service with the name `http`, Kubernetes sets HTTP_PORT together with HTTP_SERVICE_HOST.
		const isServicePort = name.endsWith("_PORT") && names.includes(name.replace(/PORT$/, "SERVICE_HOST"));
		if (own.includes(name) || KUBERNETES_VARIABLE.test(name) || isServicePort) return [];
		const intended = intendedName(name, own);
		return intended === undefined ? [] : [`${name}: is not a variable of the service; did you mean ${intended}?`];
	});
}

function intendedName(name: string, own: readonly string[]): string | undefined {
	const upper = name.toUpperCase();
	const synonym = SYNONYMS.find(([pattern]) => pattern.test(upper));
	if (synonym !== undefined) return synonym[1];
	const [prefix = ""] = RESERVED_PREFIX.exec(name) ?? [];
	const nearest = closestMatch(
		upper,
		own.filter((known) => known.startsWith(prefix)),
	);
	if (nearest === undefined || prefix !== "") return nearest;
	// Two changed letters in a short name, or one in a very short one, may make a different word.
	return leven(upper, nearest) <= (nearest.length < 5 ? 0 : nearest.length < 10 ? 1 : 2) ? nearest : undefined;
}
