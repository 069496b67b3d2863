/** What jsdom lacks of a browser and the pages need. */

import { cleanup, configure } from "@testing-library/react";
import { afterEach } from "vitest";

afterEach(cleanup);
configure({ asyncUtilTimeout: 60_000, defaultHidden: true }); // a busy machine is slow, not wrong

if (typeof window !== "undefined") window.scrollTo = () => undefined;

if (typeof Element !== "undefined") Element.prototype.scrollIntoView = () => undefined;

if (typeof HTMLDialogElement !== "undefined") {
  HTMLDialogElement.prototype.showModal = function showModal() {
    this.open = true;
  };
  HTMLDialogElement.prototype.close = function close() {
    this.open = false;
  };
}
