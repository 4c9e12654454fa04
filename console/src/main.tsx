import "./app.css";
import { render } from "preact";
import { Shell } from "./shell/shell.tsx";

const root = document.getElementById("console");
if (root !== null) render(<Shell />, root);
