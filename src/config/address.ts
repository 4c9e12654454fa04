/** Where a listener listens. */
export interface Address {
	/** Host name, IPv4 address, or IPv6 address without brackets. */
	readonly host: string;
	/** 0 to 65535; 0 lets the system choose a free port. */
	readonly port: number;
}

/** An address as it is written in a URL: `host:port`, an IPv6 host in brackets. */
export function formatAddress({ host, port }: Address): string {
	return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
