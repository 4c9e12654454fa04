import { BASE_URL } from "../service/service.ts";
import { useCopy } from "./copy.ts";

/** The setting with which an agent server posts here. */
export function PointAgentServer() {
	const { said, copy } = useCopy();
	const setting = `export OH_WEBHOOKS='[{
  "base_url": "${BASE_URL}/api/v1/webhooks",
  "headers": {"X-Access-Token": "<a key with the scope ingest>"},
  "event_buffer_size": 20,
  "flush_delay": 2,
  "num_retries": 12
}]'
export TZ=UTC`;
	return (
		<section class="card">
			<h2>Point an agent server here</h2>
			<p>Set these variables for the agent server, and start it:</p>
			<pre>{setting}</pre>
			<p class="row">
				<button type="button" onClick={() => copy(setting)}>
					Copy
				</button>
				<span class="small muted" role="status">
					{said}
				</span>
			</p>
		</section>
	);
}
