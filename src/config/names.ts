import leven, { closestMatch } from "leven";
import { variables } from "./variables.ts";

/** Beginnings of names that only this service's variables have. */
const RESERVED =
	/^(?:HTTP_ADDR|GRPC_ADDR|RETENTION_|EVENT_|ACCESS_KEY|ENCRYPTION_KEY|MAX_BODY|MAX_INFLIGHT|DRAIN_|TLS_|CLIENT_CERTIFICATE|CORS_|RATE_LIMIT)/;
/** What Kubernetes sets for each Service of its namespace, whatever the Service's name. */
const KUBERNETES = /_SERVICE_(?:HOST|PORT(?:_\w+)?)$|_PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?$/;

/** A line for each name that is not the service's and must be meant for one of its own. */
export function mistypedNames(names: readonly string[]): string[] {
	const own = variables.map(({ name }) => name);
	return names.flatMap((name) => {
		if (own.includes(name) || KUBERNETES.test(name)) return [];
		const [prefix = ""] = RESERVED.exec(name) ?? [];
		const likely = own.filter((known) => known.startsWith(prefix));
		const nearest = closestMatch(name.toUpperCase(), likely);
		if (nearest === undefined) return [];
		// In a short name two other letters make another word.
		const near = leven(name.toUpperCase(), nearest) <= (nearest.length < 10 ? 1 : 2);
		return near || prefix !== "" ? [`${name}: is not a variable of the service; the nearest is ${nearest}`] : [];
	});
}
