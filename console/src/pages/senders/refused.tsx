import type { RefusedPost } from "../../../../gen/conversations/v1/refused_post_service_pb.js";
import { ColumnHeads } from "../../parts/column-heads.tsx";
import { full } from "../../parts/format.ts";
import { ProblemNotice } from "../../parts/notice.tsx";
import { Ago } from "../../parts/time.tsx";
import { usePolledPages } from "../../service/polled.ts";
import { refusedPosts } from "../../service/service.ts";
import { addressOf } from "../../shell/route.ts";

/** Number of reasons of a post that are shown. */
const SHOWN_REASONS = 3;

/** The posts that were refused, the newest first, and why. Shows nothing while there are none. */
export function RefusedPosts({ interval }: { readonly interval: number }) {
	const { list, problem, more } = usePolledPages(async (pageSize) => {
		const page = await refusedPosts.listRefusedPosts({ pageSize });
		return { items: page.refusedPosts, hasMore: page.nextPageToken !== "" };
	}, interval);
	if (problem.value !== undefined) return <ProblemNotice problem={problem.value} />;
	if (list.value === undefined || list.value.length === 0) return null;
	return (
		<section aria-labelledby="refused-posts">
			<h2 id="refused-posts">Refused posts</h2>
			<div class="scroll" role="region" aria-label="Refused posts" tabIndex={0}>
				<table class="card wide">
					<ColumnHeads titles={["Time", "Sender", "Conversation", "Refusal", "Reasons"]} />
					<tbody>
						{list.value.map((post) => (
							<Line key={post.id} post={post} />
						))}
					</tbody>
				</table>
			</div>
			{more && (
				<button type="button" onClick={more}>
					Older
				</button>
			)}
		</section>
	);
}

function Line({ post }: { readonly post: RefusedPost }) {
	const { sender, owner, conversationId, kind, accepted, reasons } = post;
	return (
		<tr>
			<td>
				<Ago time={post.receivedAt} />
			</td>
			<td>
				<a href={addressOf(["conversations"], { sender })}>{sender}</a>{" "}
				{owner !== "" && <span class="tag">{owner}</span>}
			</td>
			<td>
				{conversationId === "" ? (
					<span class="muted">not known</span>
				) : (
					<a href={addressOf(["conversations", conversationId])}>
						<code>{conversationId.slice(0, 8)}</code>
					</a>
				)}
			</td>
			<td>
				<span class="tag">{kind}</span>
				{accepted && <span class="tag">accepted, waits to be taken in</span>}
			</td>
			<td title={post.route}>
				{reasons.slice(0, SHOWN_REASONS).map(({ place, message }) => (
					<div key={place + message}>
						{place !== "" && <code>{place}</code>} {message}
					</div>
				))}
				{reasons.length > SHOWN_REASONS && <div class="muted">and {full(reasons.length - SHOWN_REASONS)} more</div>}
			</td>
		</tr>
	);
}
