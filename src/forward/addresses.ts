import { type LookupAddress, lookup } from "node:dns";
import { BlockList, isIP, isIPv6, type LookupFunction } from "node:net";

/**
 * Addresses inside, which no endpoint may have: the special-purpose addresses of the registries of IANA (RFC 6890), and
 * addresses of IPv6 that lead to one of IPv4. A list compares the mapped form of an address of IPv4 by that.
 */
const INSIDE = new BlockList();
for (const [address, prefix] of [
	...([["0.0.0.0", 8] as const, ["10.0.0.0", 8], ["100.64.0.0", 10], ["127.0.0.0", 8], ["169.254.0.0", 16]] as const),
	...([["172.16.0.0", 12] as const, ["192.0.0.0", 24], ["192.0.2.0", 24], ["192.88.99.0", 24]] as const),
	...([["192.168.0.0", 16] as const, ["198.18.0.0", 15], ["198.51.100.0", 24], ["203.0.113.0", 24]] as const),
	...([["224.0.0.0", 4] as const, ["240.0.0.0", 4]] as const),
] as const)
	INSIDE.addSubnet(address, prefix, "ipv4");
for (const [address, prefix] of [
	...([["::", 96] as const, ["64:ff9b::", 96], ["64:ff9b:1::", 48], ["100::", 64]] as const),
	...([["2001::", 23] as const, ["2001:db8::", 32], ["2002::", 16], ["3fff::", 20], ["5f00::", 16]] as const),
	...([["fc00::", 7] as const, ["fe80::", 10], ["fec0::", 10], ["ff00::", 8]] as const),
] as const)
	INSIDE.addSubnet(address, prefix, "ipv6");

/** Whether an IP address is one inside: private, loopback, link-local or of another special purpose. */
export function isInside(address: string): boolean {
	const plain = address.replace(/%.*$/, "");
	return isIP(plain) === 0 || INSIDE.check(plain, isIPv6(plain) ? "ipv6" : "ipv4");
}

/** The error for an address inside. */
export class InsideAddress extends Error {
	constructor() {
		super("the address is private, loopback or link-local (FORWARD_PRIVATE=on allows it)");
	}
}

/** Finds the addresses of a name. */
export type Resolve = (
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
