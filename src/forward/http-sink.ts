import { type LookupAddress, lookup } from "node:dns";
import { Agent as HttpAgent, type IncomingMessage, request as requestHttp } from "node:http";
import { Agent as HttpsAgent, request as requestHttps } from "node:https";
import { BlockList, isIP, isIPv6, type LookupFunction } from "node:net";

export interface Answer {
	/** 0 when there was none. */
	readonly status: number;
	/** Why it is no success; empty for a success. */
	readonly error: string;
	readonly answer: string;
	/** Milliseconds after which the receiver asks for the next request; undefined if it does not. */
	readonly retryAfter: number | undefined;
}

/** Returns the answer to a message that got none. */
export function failure(error: string): Answer {
	return { status: 0, error, answer: "", retryAfter: undefined };
}

export interface SentMessage {
	readonly contentType: string;
	readonly body: string | Uint8Array;
	/** Messages of the same conversation stay in order where the receiver has several places. Left out for none. */
	readonly conversationId?: string;
}

export interface HttpSinkOptions {
	readonly allowsInside: boolean;
	readonly userAgent: string;
	readonly timeout?: number;
	/** For tests: finds the addresses of names. */
	readonly resolve?: Resolve | undefined;
	/** For tests: PEM of authorities that sign the certificates of receivers. */
	readonly ca?: string | undefined;
}

/** Milliseconds in which the whole answer to a delivery must arrive. */
export const TIMEOUT = 15_000;
/** Milliseconds for the body of a success, of which nothing depends. */
const SUCCESS_BODY_TIME = 1_000;
const MAX_READ = 64 * 1024;
const MAX_KEPT = 1024;
/** Maximum number of connections to an address. */
const MAX_SOCKETS = 16;

/** Sends messages by HTTP or HTTPS. It follows no redirect, verifies certificates, and connects to no address inside. */
export class HttpSink implements Disposable {
	readonly #options: HttpSinkOptions;
	readonly #http: HttpAgent;
	readonly #https: HttpsAgent;

	constructor(options: HttpSinkOptions) {
		this.#options = options;
		const { allowsInside, resolve, ca } = options;
		const settings = {
			keepAlive: true,
			maxSockets: MAX_SOCKETS,
			...(allowsInside ? {} : { lookup: guardedLookup(resolve) }),
		};
		this.#http = new HttpAgent(settings);
		this.#https = new HttpsAgent({ ...settings, rejectUnauthorized: true, ...(ca === undefined ? {} : { ca }) });
	}

	/** Sends a message, or gives up when the signal fires. Never rejects. */
	async send(
		url: string,
		message: SentMessage,
		headers: Readonly<Record<string, string>>,
		signal: AbortSignal,
	): Promise<Answer> {
		const over = AbortSignal.any([signal, AbortSignal.timeout(this.#options.timeout ?? TIMEOUT)]);
		try {
			const response = await this.#request(new URL(url), message, headers, over);
			const { statusCode: status = 0 } = response;
			const isSuccess = status >= 200 && status < 300;
			const body = await bodyOf(response, isSuccess ? SUCCESS_BODY_TIME : undefined);
			const answer = body.subarray(0, MAX_KEPT).toString("utf8");
			const retryAfter = retryAfterOf(response.headers["retry-after"]);
			return { status, error: isSuccess ? "" : refusalOf(status), answer, retryAfter };
		} catch (error) {
			return failure(over.aborted && !signal.aborted ? "no answer in time" : reasonOf(error));
		}
	}

	/**
	 * Returns why no message can be sent to an address; undefined when that shows only with the connection.
	 *
	 * @param text the address as it was written, because a parsed one shows no missing host
	 */
	refusalOf(text: string): string | undefined {
		if (!/^https?:\/\/[^/\\?#]/i.test(text)) return "must have a host after http:// or https://";
		const url = new URL(text);
		if (url.username + url.password + url.hash !== "") return "must have no user name, no password and no fragment";
		if (url.port === "0") return "must not have the port 0";
		return this.#isRefusedHost(url) ? `must be outside: ${INSIDE_ADDRESS}` : undefined;
	}

	/** Whether a host is an address inside or a name of this machine (RFC 6761, section 6.3), and these are not allowed. */
	#isRefusedHost({ hostname }: URL): boolean {
		const host = hostname.replace(/^\[|\]$/g, "");
		const isHere = isIP(host) === 0 ? /(?:^|\.)localhost\.?$/.test(host) : isInside(host);
		return isHere && !this.#options.allowsInside;
	}

	#request(url: URL, message: SentMessage, headers: Readonly<Record<string, string>>, signal: AbortSignal) {
		const isSecure = url.protocol === "https:";
		const { userAgent } = this.#options;
		return new Promise<IncomingMessage>((resolve, reject) => {
			if (this.#isRefusedHost(url)) throw new InsideAddress();
			const body = typeof message.body === "string" ? Buffer.from(message.body) : message.body;
			const request = (isSecure ? requestHttps : requestHttp)(
				url,
				{
					method: "POST",
					agent: isSecure ? this.#https : this.#http,
					signal,
					headers: {
						...headers,
						"Content-Type": message.contentType,
						"Content-Length": body.byteLength,
						"User-Agent": userAgent,
						Accept: "*/*",
					},
				},
				resolve,
			);
			request.on("error", reject);
			request.end(body);
		});
	}

	[Symbol.dispose](): void {
		this.#http.destroy();
		this.#https.destroy();
	}
}

/**
 * Reads the beginning of a body. A longer one ends its connection. One that is cut has what arrived: the status has already
 * said whether the message was taken.
 *
 * @param time milliseconds after which the rest is not waited for; undefined for the time of the whole answer
 */
async function bodyOf(response: IncomingMessage, time: number | undefined): Promise<Buffer> {
	const chunks: Buffer[] = [];
	let size = 0;
	const timer = time === undefined ? undefined : setTimeout(() => response.destroy(), time);
	try {
		for await (const chunk of response) {
			if (!Buffer.isBuffer(chunk)) continue;
			size += chunk.byteLength;
			chunks.push(chunk);
			// Leaving the loop destroys the response and its connection.
			if (size >= MAX_READ) break;
		}
	} catch {
		// What arrived is enough.
	} finally {
		clearTimeout(timer);
	}
	return Buffer.concat(chunks);
}

function refusalOf(status: number): string {
	return status >= 300 && status < 400 ? "a redirect, which is not followed" : `the status is ${status}`;
}

/** Returns the milliseconds of a `Retry-After` header (RFC 9110, section 10.2.3); undefined when there is none. */
export function retryAfterOf(header: string | null | undefined): number | undefined {
	if (header == null) return undefined;
	const wait = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
	return Number.isNaN(wait) ? undefined : Math.max(0, wait);
}

function reasonOf(error: unknown): string {
	if (error instanceof InsideAddress) return error.message;
	if (!(error instanceof Error)) return "the request failed";
	// A connection that is tried at several addresses fails with all of the reasons.
	const first: unknown = error instanceof AggregateError ? error.errors[0] : error;
	const code = first instanceof Error && "code" in first ? String(first.code) : "";
	return code === "" ? error.message : code;
}

/**
 * Addresses inside, which no endpoint may have: the special-purpose addresses of the registries of IANA (RFC 6890), and
 * addresses of IPv6 that lead to one of IPv4. A list compares the mapped form of an address of IPv4 by that.
 */
const INSIDE = new BlockList();
const SUBNETS = [
	"0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24",
	"192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4",
	"::/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 2002::/16 3fff::/20 5f00::/16",
	"fc00::/7 fe80::/10 fec0::/10 ff00::/8",
];
for (const subnet of SUBNETS.join(" ").split(" ")) {
	const [address = "", bits] = subnet.split("/");
	INSIDE.addSubnet(address, Number(bits), isIPv6(address) ? "ipv6" : "ipv4");
}

/** Whether an IP address is one inside: private, loopback, link-local or of another special purpose. */
export function isInside(address: string): boolean {
	const plain = address.replace(/%.*$/, "");
	return isIP(plain) === 0 || INSIDE.check(plain, isIPv6(plain) ? "ipv6" : "ipv4");
}

const INSIDE_ADDRESS = "the address is private, loopback or link-local (FORWARD_PRIVATE=on allows it)";

class InsideAddress extends Error {
	constructor() {
		super(INSIDE_ADDRESS);
	}
}

type Resolve = (
	name: string,
	options: { readonly all: true; readonly family?: number },
	callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

/**
 * Returns the look-up of names for a socket. The socket connects to the addresses that were checked here, so that a name
 * which changes its address afterwards changes nothing. A socket looks up no IP address: see {@link isInside}.
 */
export function guardedLookup(resolve: Resolve = lookup): LookupFunction {
	return (name, { all, family }, callback) => {
		const asked = typeof family === "number" ? { all: true as const, family } : { all: true as const };
		resolve(name, asked, (error, addresses) => {
			const [first] = addresses ?? [];
			if (error !== null || first === undefined) return callback(error ?? new Error("the name has no address"), "", 4);
			if (addresses.some(({ address }) => isInside(address))) return callback(new InsideAddress(), "", 4);
			if (all === true) callback(null, addresses);
			else callback(null, first.address, first.family);
		});
	};
}
