// SPDX-License-Identifier: Apache-2.0
// What an update must not change, and a notice when there are no updates.
"use strict";
Idiomorph.defaults.ignoreActiveValue = true;
Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
  !(name === "open" && node.tagName === "DETAILS");
Idiomorph.defaults.callbacks.beforeNodeMorphed = (node) => node.tagName !== "FORM";
const stale = (is) => () => {
  document.getElementById("stale").hidden = !is;
};
document.addEventListener("htmx:sseError", stale(true));
document.addEventListener("htmx:sseOpen", stale(false));
