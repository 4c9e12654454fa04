import { useSignal } from "@preact/signals";
import type { ComponentChildren, ComponentType } from "preact";
import { useEffect } from "preact/hooks";

interface Substitutes {
	/** What is shown while the component is loaded. */
	readonly waiting: ComponentChildren;
	/** What is shown when it cannot be loaded. */
	readonly failed: (error: unknown) => ComponentChildren;
}

/**
 * Returns a component that is loaded when it is shown first. Browsers keep the failure of a module: only a reload of the
 * console loads it again.
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
			if (View !== undefined) return;
			load().then(
				(module) => {
					View = module.default;
					isLoaded.value = true;
				},
				(error: unknown) => {
					failure.value = { error };
				},
			);
		}, []);
		if (failure.value !== undefined) return failed(failure.value.error);
		return isLoaded.value && View !== undefined ? <View {...props} /> : waiting;
	};
}
