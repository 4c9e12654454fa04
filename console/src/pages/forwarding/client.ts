import { createClient } from "@connectrpc/connect";
import { ForwardingService } from "../../../../gen/conversations/v1/forwarding_service_pb.js";
import { transport } from "../../service/service.ts";

export const client = createClient(ForwardingService, transport);
