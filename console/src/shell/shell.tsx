import { useSignal } from "@preact/signals";
import type { ComponentChildren, ComponentType } from "preact";
import { useEffect, useErrorBoundary, useRef } from "preact/hooks";
import ConversationsPage from "../pages/conversations/view.tsx";
import { zone } from "../parts/days.ts";
import { loadedLater } from "../parts/loaded-later.tsx";
import { Notice } from "../parts/notice.tsx";
import { useScope } from "../service/caller.ts";
import { accessKey, admitted, signOut } from "../service/session.ts";
import { live, type WatchState } from "../service/watch.ts";
import { activeShortcuts, type Shortcut, useShortcuts } from "./keys.ts";
import { BrokenPage, MissingPage, pageIsThere } from "./page-failure.tsx";
import { addressOf, go, path, switchZone } from "./route.ts";
import { SearchBox } from "./search-box.tsx";
import { OfferedKey, SignIn } from "./sign-in.tsx";
import { nextTheme, theme } from "./theme.ts";
import { useTitle } from "./title.ts";

/**
 * Pages by the first part of the address. All but the list, which most people open first, are loaded when they are opened
 * first. The box in the header leads to `search`, and two chosen rows of the list to `compare`.
 */
const PAGES = {
	conversations: { title: "Conversations", view: ConversationsPage },
	usage: { title: "Usage", view: loadedPage(() => import("../pages/usage/view.tsx")) },
	scores: { title: "Scores", view: loadedPage(() => import("../pages/scores/view.tsx")) },
	senders: { title: "Senders", view: loadedPage(() => import("../pages/senders/view.tsx")) },
	forwarding: { title: "Forwarding", view: loadedPage(() => import("../pages/forwarding/view.tsx")) },
	budgets: { title: "Budgets", view: loadedPage(() => import("../pages/budgets/view.tsx")) },
	about: { title: "About", view: loadedPage(() => import("../pages/about/view.tsx")) },
	search: { title: "Search", view: loadedPage(() => import("../pages/search/view.tsx")) },
	compare: { title: "Compare", view: loadedPage(() => import("../pages/compare/view.tsx")) },
} as const;
const Conversation = loadedPage(() => import("../pages/conversation/view.tsx"));

/** Returns a page whose files are loaded when it is opened first. */
function loadedPage<Props extends object>(
	load: () => Promise<{ readonly default: ComponentType<Props> }>,
): ComponentType<Props> {
	const noted = async () => {
		const page = await load();
		pageIsThere();
		return page;
	};
	return loadedLater(noted, {
		waiting: <Notice title="Loading…" />,
		failed: (error) => <MissingPage error={error} />,
	});
}

type PageName = keyof typeof PAGES;
/** The pages of the keys 1 to 5. */
const NAMES: readonly PageName[] = ["conversations", "usage", "senders", "about", "scores"];
const ALL_NAMES: readonly PageName[] = [...NAMES, "forwarding", "budgets", "search", "compare"];

/** The page of the address, with the navigation above it. */
export function Shell() {
	return admitted.value ? <Pages /> : <SignIn />;
}

function Pages() {
	const mayForward = useScope("forward");
	const [first = "conversations", id, ...rest] = path.value;
	const name = ALL_NAMES.find((known) => known === first);
	const conversation = name === "conversations" && rest.length === 0 ? id : undefined;
	const Page = name === undefined || (id !== undefined && conversation === undefined) ? NoPage : PAGES[name].view;
	return (
		<>
			<button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
				Skip to content
			</button>
			<header class="top">
				<nav aria-label="Pages">
					{(mayForward ? NAMES.toSpliced(3, 0, "forwarding", "budgets") : NAMES).map((page) => (
						<a key={page} href={addressOf([page])} aria-current={page === name ? "page" : undefined}>
							{PAGES[page].title}
						</a>
					))}
				</nav>
				<SearchBox />
				<div class="side">
					<Live />
					<button type="button" onClick={switchZone} title="Show times and days in the zone of this browser, or in UTC">
						time: {zone.value === "utc" ? "UTC" : "local"}
					</button>
					<button type="button" onClick={nextTheme} title="Change the theme">
						theme: {theme.value}
					</button>
					{accessKey.value !== undefined && (
						<button type="button" onClick={() => signOut()}>
							Sign out
						</button>
					)}
				</div>
			</header>
			<OfferedKey />
			{/* What one key may see is not shown to another one. */}
			<main key={accessKey.value} id="main" tabIndex={-1}>
				<Boundary key={conversation ?? name}>
					{conversation === undefined ? <Page /> : <Conversation id={conversation} />}
				</Boundary>
			</main>
			<Help />
		</>
	);
}

/** Says when an error ends a page. The rest of the console stays. */
function Boundary({ children }: { readonly children: ComponentChildren }) {
	const [error] = useErrorBoundary((thrown: unknown) => reportError(thrown));
	return error === undefined ? children : <BrokenPage error={error} />;
}

/** Stands at an address that no page has. */
function NoPage() {
	useTitle("Not found");
	return (
		<Notice title="Not found">
			<span>The console has no page at this address.</span>
			<a href={addressOf(["conversations"])}>All conversations</a>
		</Notice>
	);
}

const LIVE_WORDS: Readonly<Record<WatchState, string>> = {
	connecting: "connecting…",
	live: "live",
	lost: "not live, reconnecting",
};

/** Whether the page shows the present state. */
function Live() {
	if (live.value === undefined) return null;
	return (
		<span class={`watch ${live.value}`} role="status">
			{LIVE_WORDS[live.value]}
		</span>
	);
}

/** The list of keys, which `?` opens. */
function Help() {
	const dialog = useRef<HTMLDialogElement>(null);
	const shown = useSignal<readonly Shortcut[]>([]);
	useShortcuts([
		{
			key: "?",
			meaning: "show these keys",
			run: () => {
				shown.value = activeShortcuts();
				dialog.current?.showModal();
			},
		},
		...NAMES.map((page, index) => ({
			key: String(index + 1),
			meaning: `open ${PAGES[page].title}`,
			run: () => go(addressOf([page])),
		})),
	]);
	useEffect(() => {
		const { current } = dialog;
		const close = (event: MouseEvent): void => {
			if (event.target === current) current?.close();
		};
		current?.addEventListener("click", close);
		return () => current?.removeEventListener("click", close);
	}, []);
	return (
		<dialog ref={dialog} aria-label="Keys">
			<h2>Keys</h2>
			<table>
				<tbody>
					{shown.value.map(({ key, meaning }) => (
						<tr key={key}>
							<td>
								<kbd>{key}</kbd>
							</td>
							<td>{meaning}</td>
						</tr>
					))}
				</tbody>
			</table>
		</dialog>
	);
}
