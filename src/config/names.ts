import leven, { closestMatch } from "leven";
import { variables } from "./variables.ts";

/** Beginnings of names that only this service's variables have. */
const RESERVED =
	/^(?:HTTP_ADDR|GRPC_ADDR|RETENTION_|EVENT_|ACCESS_KEY|ENCRYPTION_KEY|MAX_BODY|MAX_INFLIGHT|DRAIN_|TLS_|CLIENT_CERTIFICATE|CORS_|RATE_LIMIT)/;
/**
 * Names that other programs have for what a variable of the service says. `PORT` is none of them: platforms set it
 * unasked.
 */
const SYNONYMS = [
	[/^HTTP_(?:HOST|PORT|BIND|LISTEN)$/, "HTTP_ADDRESS"],
	[/^GRPC_(?:HOST|PORT|BIND|LISTEN)$/, "GRPC_ADDRESS"],
	[/^(?:DATABASE|DATABASE_(?:DSN|FILE|PATH)|DB_URL)$/, "DATABASE_URL"],
] as const;
/** What Kubernetes sets for each Service of its namespace, whatever the Service's name. */
const KUBERNETES = /_SERVICE_(?:HOST|PORT(?:_\w+)?)$|_PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?$/;

/** A line for each name that is not the service's and must be meant for one of its own. */
export function mistypedNames(names: readonly string[]): string[] {
	const own = variables.map(({ name }) => name);
	return names.flatMap((name) => {
		// Of a Service `http`, Kubernetes sets HTTP_PORT, and HTTP_SERVICE_HOST with it.
		const isPort = name.endsWith("_PORT") && names.includes(name.replace(/PORT$/, "SERVICE_HOST"));
		if (own.includes(name) || KUBERNETES.test(name) || isPort) return [];
		const meant = meantBy(name, own);
		return meant === undefined ? [] : [`${name}: is not a variable of the service; the nearest is ${meant}`];
	});
}

function meantBy(name: string, own: readonly string[]): string | undefined {
	const upper = name.toUpperCase();
	const synonym = SYNONYMS.find(([pattern]) => pattern.test(upper));
	if (synonym !== undefined) return synonym[1];
	const [prefix = ""] = RESERVED.exec(name) ?? [];
	const nearest = closestMatch(
		upper,
		own.filter((known) => known.startsWith(prefix)),
	);
	if (nearest === undefined || prefix !== "") return nearest;
	// In a short name two other letters make another word.
	return leven(upper, nearest) <= (nearest.length < 10 ? 1 : 2) ? nearest : undefined;
}
