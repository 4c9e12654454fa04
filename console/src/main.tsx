import "./app.css";
import { render } from "preact";
import { takeKeyFromAddress } from "./service/session.ts";
import { Shell } from "./shell/shell.tsx";

takeKeyFromAddress();
addEventListener("hashchange", takeKeyFromAddress);

const root = document.getElementById("console");
if (root !== null) render(<Shell />, root);
