/** Host and port of a listener. */
export interface Address {
	/** Host name, IPv4 address, or IPv6 address without brackets. */
	readonly host: string;
	/** 0 to 65535; 0 lets the system choose a free port. */
	readonly port: number;
}

/** Formats an address as in a URL: `host:port`, with an IPv6 host in brackets. */
export function formatAddress({ host, port }: Address): string {
	return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
