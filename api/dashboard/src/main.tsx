/** Renders the app. If the address has a code, it signs the browser in first; a later address is followed too. */

import "./theme.css"; // first, so that a component's own rules override it
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { makeClient } from "./api/query-client";
import { App } from "./app";
import { followLinks, signInByLink } from "./features/session/link";
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
followLinks(client);
void signInByLink(client).finally(show);
