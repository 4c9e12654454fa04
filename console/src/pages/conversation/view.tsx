import { Notice } from "../../parts/notice.tsx";

export default function Page(_: { readonly id: string }) {
	return <Notice title="…" />;
}
