import {
	type ConversationFilter,
	ConversationFilterSchema,
} from "../../gen/conversations/v1/conversation_service_pb.js";
import { parametersOf, readRequest } from "../transports/reads/parameters.ts";

/**
 * Returns the filter that `--filter` names by the parameters of lists, such as `tag=team:a&has_error=false`.
 *
 * @throws ServiceError `invalid_argument` that names the parameter
 */
export function filterOption(search: string): ConversationFilter {
	const parameters = parametersOf(ConversationFilterSchema, "", false);
	return readRequest(ConversationFilterSchema, parameters, { params: {}, search });
}
