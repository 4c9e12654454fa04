import { createClient } from "@connectrpc/connect";
import { BudgetService } from "../../../../gen/conversations/v1/budget_service_pb.js";
import { transport } from "../../service/service.ts";

export const client = createClient(BudgetService, transport);
