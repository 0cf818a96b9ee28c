/** The dashboard: the theme, the session, the stream and the pages, put together. */
import { render } from "preact";
import { startLive } from "./core/live";
import { startRouter } from "./core/router";
import { findSession } from "./core/session";
import { startTheme } from "./core/theme";
import { Frame } from "./shell/frame";
import "./style/base.css";
import "./style/frame.css";
import "./style/controls.css";
import "./style/parts.css";
import "./style/pages.css";
import "./style/records.css";

startTheme();
startRouter();
startLive();
void findSession();

const root = document.getElementById("app");
if (root !== null) render(<Frame />, root);
