/** Renders the app. If the address has a code, it signs the browser in first. */

import "./theme.css"; // first, so that a component's own rules override it
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { BAD_LINK, makeClient } from "./api/query-client";
import { signIn, takeCode } from "./api/session";
import { App } from "./app";
import { followTheme } from "./hooks/use-theme";

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no #root");

followTheme();
const client = makeClient();
const show = () => {
  createRoot(root).render(
    <StrictMode>
      <App client={client} />
    </StrictMode>,
  );
};
const code = takeCode();
if (code === null) show();
else void signIn({ code }).catch((error: unknown) => { client.setQueryData(BAD_LINK, error); }).finally(show);
