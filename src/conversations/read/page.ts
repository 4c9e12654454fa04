import { invalid } from "./filter.ts";

const DEFAULT_SIZE = 50;
const MAX_SIZE = 1000;

/**
 * Maximum bytes of records on a page. gRPC clients refuse messages over 4 MiB by default. The difference is for the
 * fields around the records.
 */
export const MAX_PAGE_BYTES = 3.5 * 1024 * 1024;

/**
 * Returns the maximum number of entries on a page: 50 when 0 is requested, and never more than 1000.
 *
 * @throws ServiceError `invalid_argument` for a negative size
 */
export function pageSize(requested: number): number {
	if (requested < 0) throw invalid("page_size", "must not be negative");
	return requested === 0 ? DEFAULT_SIZE : Math.min(requested, MAX_SIZE);
}
