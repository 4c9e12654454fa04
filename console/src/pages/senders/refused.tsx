import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { RefusedPost } from "../../../../gen/conversations/v1/refused_post_service_pb.js";
import { full } from "../../parts/format.ts";
import { ProblemNotice } from "../../parts/notice.tsx";
import { Ago } from "../../parts/time.tsx";
import { type Problem, problemOf, refusedPosts } from "../../service/service.ts";
import { addressOf } from "../../shell/route.ts";

/** Number of posts that a page adds to the list. */
const PAGE_SIZE = 20;
/** Number of reasons of a post that are shown. */
const SHOWN_REASONS = 3;

/** The posts that were refused, the newest first, and why. Shows nothing while there are none. */
export function RefusedPosts({ interval }: { readonly interval: number }) {
	const posts = useSignal<readonly RefusedPost[]>([]);
	const next = useSignal("");
	const pages = useSignal(1);
	const problem = useSignal<Problem | undefined>(undefined);
	const load = async (): Promise<void> => {
		try {
			const page = await refusedPosts.listRefusedPosts({ pageSize: PAGE_SIZE * pages.value });
			posts.value = page.refusedPosts;
			next.value = page.nextPageToken;
			problem.value = undefined;
		} catch (error) {
			problem.value = problemOf(error);
		}
	};
	useEffect(() => {
		void load();
		const timer = setInterval(() => void load(), interval);
		return () => clearInterval(timer);
	}, []);
	if (problem.value !== undefined) return <ProblemNotice problem={problem.value} />;
	if (posts.value.length === 0) return null;
	return (
		<section aria-labelledby="refused-posts">
			<h2 id="refused-posts">Refused posts</h2>
			<div class="scroll" role="region" aria-label="Refused posts" tabIndex={0}>
				<table class="card wide">
					<thead>
						<tr>
							{["Time", "Sender", "Conversation", "Refusal", "Reasons"].map((title) => (
								<th key={title} scope="col">
									{title}
								</th>
							))}
						</tr>
					</thead>
					<tbody>
						{posts.value.map((post) => (
							<Line key={post.id} post={post} />
						))}
					</tbody>
				</table>
			</div>
			{next.value !== "" && (
				<button
					type="button"
					onClick={() => {
						pages.value += 1;
						void load();
					}}
				>
					Older
				</button>
			)}
		</section>
	);
}

function Line({ post }: { readonly post: RefusedPost }) {
	const { sender, owner, peer, requests, conversationId, kind, accepted, reasons } = post;
	return (
		<tr>
			<td>
				<Ago time={post.lastAt} />
			</td>
			<td>
				{sender !== "" ? (
					<a href={addressOf(["conversations"], { sender })}>{sender}</a>
				) : (
					<span>
						{peer} without a valid key, {requests === 1n ? "once" : `${full(requests)} times`}
					</span>
				)}{" "}
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
