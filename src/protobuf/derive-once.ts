/**
 * Derives a function from a message's plan or descriptor once. A message that contains itself is given a stand-in while
 * its function is being derived, which from then on calls that function.
 *
 * @param known what was derived before; the new function is kept there
 * @param derive must not call the functions that it is given for other messages, only keep them
 */
export function deriveOnce<Key, Arguments extends readonly unknown[], Result>(
	known: Map<Key, (...args: Arguments) => Result>,
	key: Key,
	derive: () => (...args: Arguments) => Result,
): (...args: Arguments) => Result {
	const before = known.get(key);
	if (before !== undefined) return before;
	let complete: ((...args: Arguments) => Result) | undefined;
	known.set(key, (...args) => {
		if (complete === undefined) throw new TypeError("a function was called while it was being derived");
		return complete(...args);
	});
	complete = derive();
	known.set(key, complete);
	return complete;
}
