import type { MessageInitShape } from "@bufbuild/protobuf";
import { type AccessKeySchema, AccessKeyService } from "../../gen/conversations/v1/access_key_service_pb.js";
import type { AccessKeys, ListedKey } from "../access/access-keys.ts";
import { invalid } from "../conversations/read/filter.ts";
import { fromMicroseconds, toMicroseconds } from "../record/json/scalars.ts";
import { type RpcMethod, unary } from "./rpc-method.ts";

/** Last second of the year 9999, the largest time that a protobuf timestamp may have. */
const LAST_SECOND = 253_402_300_799n;

/** The methods of `AccessKeyService`. */
export function accessKeyMethods(keys: AccessKeys): readonly RpcMethod[] {
	const { createAccessKey, listAccessKeys, revokeAccessKey } = AccessKeyService.method;
	return [
		unary(createAccessKey, async ({ name, scopes, owner, expiresAt }, caller) => {
			if (expiresAt !== undefined && expiresAt.seconds > LAST_SECOND)
				throw invalid("expires_at", "must be before the year 10000");
			const asked = { name, scopes, owner, expiresAt: expiresAt && toMicroseconds(expiresAt) };
			const { key, row } = await keys.create(asked, caller);
			return { key, accessKey: toAccessKey({ ...row, configured: false }) };
		}),
		unary(listAccessKeys, async (_, caller) => ({ accessKeys: keys.list(caller).map(toAccessKey) })),
		unary(revokeAccessKey, async ({ name }, caller) => {
			const row = await keys.revoke(name, caller);
			return { accessKey: toAccessKey({ ...row, configured: false }) };
		}),
	];
}

function toAccessKey(key: ListedKey): MessageInitShape<typeof AccessKeySchema> {
	const { name, scopes, owner, configured } = key;
	const common = { name, scopes: [...scopes], owner: owner ?? "", configured };
	if (key.configured) return common;
	const time = (micros: bigint | undefined) => (micros === undefined ? undefined : fromMicroseconds(micros));
	const { createdAt, createdBy, expiresAt, revokedAt, lastUsedAt } = key;
	return {
		...common,
		createdBy,
		createdAt: fromMicroseconds(createdAt),
		expiresAt: time(expiresAt),
		revokedAt: time(revokedAt),
		lastUsedAt: time(lastUsedAt),
	};
}
