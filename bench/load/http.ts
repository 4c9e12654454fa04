import { serve } from "../processes/parent.ts";
import { HttpLanes } from "./http-lanes.ts";
import { loadPlan } from "./plan.ts";
import { run } from "./run.ts";

/** HTTP/1.1 load client. */

serve(loadPlan, async (plan) => {
	using connections = await HttpLanes.open(plan.port, plan.concurrency);
	return await run(plan, connections.lanes);
});
