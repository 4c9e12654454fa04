import { useSignal } from "@preact/signals";
import type { ComponentChildren, ComponentType } from "preact";
import { useEffect } from "preact/hooks";

interface Substitutes {
	/** What is shown while the component is loaded. */
	readonly waiting: ComponentChildren;
	/** What is shown when it cannot be loaded. */
	readonly failed: (error: unknown) => ComponentChildren;
}

/** Milliseconds after which a component is loaded again. */
const RETRY_AFTER = 5_000;

/**
 * Returns a component that is loaded when it is shown first, and again until that succeeds. Browsers keep the failure of a
 * module under its address, so it gets another one, if the error names it.
 */
export function loadedLater<Props extends object>(
	load: () => Promise<{ readonly default: ComponentType<Props> }>,
	{ waiting, failed }: Substitutes,
): ComponentType<Props> {
	let View: ComponentType<Props> | undefined;
	return function LoadedLater(props: Props) {
		const isLoaded = useSignal(View !== undefined);
		const failure = useSignal<{ readonly error: unknown } | undefined>(undefined);
		useEffect(() => {
			let timer: ReturnType<typeof setTimeout>;
			const attempt = (address?: string): void => {
				const loading: ReturnType<typeof load> = address === undefined ? load() : import(/* @vite-ignore */ address);
				loading.then(
					(module) => {
						View = module.default;
						isLoaded.value = true;
					},
					(error: unknown) => {
						failure.value = { error };
						const [named] = /https?:[^\s?]+\.js/.exec(String(error)) ?? [];
						timer = setTimeout(() => attempt(named && `${named}?at=${Date.now()}`), RETRY_AFTER);
					},
				);
			};
			if (View === undefined) attempt();
			return () => clearTimeout(timer);
		}, []);
		if (isLoaded.value && View !== undefined) return <View {...props} />;
		return failure.value === undefined ? waiting : failed(failure.value.error);
	};
}
