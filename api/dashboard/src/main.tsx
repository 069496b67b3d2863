/** Puts the app on the page. */

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app";
import { makeClient } from "./services/query-client";
import "./theme.css";

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no #root");
createRoot(root).render(
  <StrictMode>
    <App client={makeClient()} />
  </StrictMode>,
);
