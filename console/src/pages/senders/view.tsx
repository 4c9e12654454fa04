import { Notice } from "../../parts/notice.tsx";

export default function Page() {
	return <Notice title="…" />;
}
