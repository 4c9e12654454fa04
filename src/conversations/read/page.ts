import { invalid } from "./filter.ts";

const DEFAULT_SIZE = 50;
const MAX_SIZE = 1000;

/**
 * Bytes of records after which a page ends. gRPC clients refuse messages over 4 MiB unless they are told otherwise; the
 * rest is for what stands around the records.
 */
export const MAX_PAGE_BYTES = 3.5 * 1024 * 1024;

/**
 * The number of entries that a page may have: 50 when 0 is asked for, and never more than 1000.
 *
 * @throws ServiceError `invalid_argument` for a negative size
 */
export function pageSize(asked: number): number {
	if (asked < 0) throw invalid("page_size", "must not be negative");
	return asked === 0 ? DEFAULT_SIZE : Math.min(asked, MAX_SIZE);
}
