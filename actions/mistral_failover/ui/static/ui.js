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
// Without JavaScript there are no copy buttons.
document.documentElement.classList.add("js");
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const words = button.previousElementSibling;
  let said = "Copied";
  try {
    await navigator.clipboard.writeText(words.textContent);
  } catch {
    getSelection().selectAllChildren(words);
    said = "Selected: copy it with the keyboard";
  }
  button.textContent = said === "Copied" ? said : "Selected";
  document.getElementById("copied").textContent = said;
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});
